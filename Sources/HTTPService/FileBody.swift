import CSystem
import Glibc

/// Parts of an open file as a response body, with texts between them if there are several (multipart/byteranges,
/// RFC 9110 §14.6). Owns the descriptor.
final class FileBody: HTTPBodyStream {
    enum Piece {
        case bytes([UInt8])
        case range(Range<UInt64>)
    }

    private let descriptor: Int32
    private var pieces: [Piece]
    private var index = 0
    private var offset: UInt64 = 0
    private let total: UInt64

    init(descriptor: Int32, pieces: [Piece]) {
        self.descriptor = descriptor
        self.pieces = pieces
        total = pieces.reduce(0) { sum, piece in
            switch piece {
            case .bytes(let bytes): sum + UInt64(bytes.count)
            case .range(let range): sum + UInt64(range.count)
            }
        }
        super.init()
    }

    deinit { _ = Glibc.close(descriptor) }

    override var length: UInt64? { total }

    override var region: FileRegion? {
        guard index < pieces.count, case .range(let range) = pieces[index] else { return nil }
        let start = range.lowerBound + offset
        return FileRegion(descriptor: descriptor, offset: start, count: range.upperBound - start)
    }

    override var isAtEnd: Bool { index >= pieces.count }

    override func advance(_ count: Int) {
        offset += UInt64(max(0, count))
        guard index < pieces.count, case .range(let range) = pieces[index], offset >= UInt64(range.count) else {
            return
        }
        index += 1
        offset = 0
    }

    override func read(into buffer: UnsafeMutableRawBufferPointer) -> Int? {
        guard index < pieces.count, let base = buffer.baseAddress else { return 0 }
        switch pieces[index] {
        case .bytes(let bytes):
            let start = Int(offset)
            let count = min(buffer.count, bytes.count - start)
            bytes.withUnsafeBytes {
                buffer.copyMemory(from: UnsafeRawBufferPointer(rebasing: $0[start..<(start + count)]))
            }
            offset += UInt64(count)
            if Int(offset) == bytes.count {
                index += 1
                offset = 0
            }
            return count
        case .range(let range):
            let left = UInt64(range.count) - offset
            let wanted = Int(min(left, UInt64(buffer.count)))
            guard let position = Int64(exactly: range.lowerBound + offset) else { return nil }
            let count = csystem_pread(descriptor, base, wanted, position)
            // A file that has become shorter cannot keep what the head has promised.
            guard count > 0 else { return nil }
            advance(count)
            return count
        }
    }
}
