import CSystem
import CZlib
import Glibc

/// A file compressed while it is sent (RFC 1952). Owns the descriptor.
final class GzipBody: HTTPBodyStream {
    private static let chunk = 64 << 10
    private let descriptor: Int32
    private var stream = z_stream()
    private var isReady = false
    private var isFinished = false
    private var position: Int64 = 0
    private var input = [UInt8](repeating: 0, count: chunk)
    private var held = 0
    private var start = 0
    private var hasReadAll = false

    /// Nil if zlib has no memory; the descriptor is then the caller's still.
    init?(descriptor: Int32) {
        self.descriptor = descriptor
        super.init()
        let code = deflateInit2_(
            &stream, 6, Z_DEFLATED, 15 + 16, 8, Z_DEFAULT_STRATEGY, ZLIB_VERSION, Int32(MemoryLayout<z_stream>.size))
        guard code == Z_OK else { return nil }
        isReady = true
    }

    deinit {
        if isReady {
            deflateEnd(&stream)
            _ = Glibc.close(descriptor)
        }
    }

    override func read(into buffer: UnsafeMutableRawBufferPointer) -> Int? {
        guard !isFinished, let base = buffer.baseAddress?.assumingMemoryBound(to: UInt8.self) else { return 0 }
        // Little at a time: others share the thread.
        let room = min(buffer.count, Self.chunk)
        stream.next_out = base
        stream.avail_out = UInt32(room)
        while stream.avail_out == UInt32(room) {
            if held == 0, !hasReadAll {
                let count = input.withUnsafeMutableBytes { bytes in
                    bytes.baseAddress.map { csystem_pread(descriptor, $0, bytes.count, position) } ?? 0
                }
                guard count >= 0 else { return nil }
                position += Int64(count)
                held = count
                start = 0
                hasReadAll = count == 0
            }
            let code = input.withUnsafeMutableBufferPointer { bytes -> Int32 in
                stream.next_in = bytes.baseAddress.map { $0 + start }
                stream.avail_in = UInt32(held)
                return deflate(&stream, hasReadAll ? Z_FINISH : Z_NO_FLUSH)
            }
            start += held - Int(stream.avail_in)
            held = Int(stream.avail_in)
            if code == Z_STREAM_END {
                isFinished = true
                break
            }
            guard code == Z_OK || code == Z_BUF_ERROR else { return nil }
        }
        return room - Int(stream.avail_out)
    }
}
