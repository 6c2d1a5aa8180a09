import BLIPProtocol
import CBLIP
import Glibc
import Synchronization

/// Bytes of the program that are sent from where they lie.
final class BorrowedSource: BodySource, @unchecked Sendable {
    let bytes: UnsafeRawBufferPointer
    private var position = 0
    /// Releases the bytes when the source goes.
    private let holder: Handler<Never>

    init(_ bytes: UnsafeRawBufferPointer, _ holder: Handler<Never>) {
        self.bytes = bytes
        self.holder = holder
    }

    override var remaining: UInt64? { UInt64(bytes.count - position) }

    override func read(into buffer: UnsafeMutableRawBufferPointer) -> BodyRead {
        let count = min(buffer.count, bytes.count - position)
        if count > 0 { buffer.copyMemory(from: UnsafeRawBufferPointer(rebasing: bytes[position..<position + count])) }
        position += count
        return position == bytes.count ? .end(count) : .bytes(count)
    }
}

/// Bytes that the library holds for a later part of a body.
final class CopiedSource: BodySource, @unchecked Sendable {
    private let text: Text
    private var position = 0

    init(_ bytes: UnsafeRawBufferPointer) { text = Text(bytes) }

    override var remaining: UInt64? { UInt64(text.count - position) }

    override func read(into buffer: UnsafeMutableRawBufferPointer) -> BodyRead {
        let count = min(buffer.count, text.count - position)
        if count > 0, let data = text.slice.data {
            buffer.copyMemory(from: UnsafeRawBufferPointer(start: data + position, count: count))
        }
        position += count
        return position == text.count ? .end(count) : .bytes(count)
    }
}

/// A range of a regular file, read from its descriptor without moving the file's position.
final class FileSource: BodySource, @unchecked Sendable {
    private let descriptor: Int32
    private let closesDescriptor: Bool
    private var position: Int64
    private var left: UInt64

    /// Nil if the descriptor is not a regular file or the range lies outside of it.
    init?(_ descriptor: Int32, offset: UInt64, length: UInt64, closes: Bool) {
        var status = stat()
        guard fstat(descriptor, &status) == 0, status.st_mode & S_IFMT == S_IFREG,
            let size = UInt64(exactly: status.st_size), offset <= size
        else { return nil }
        let available = size - offset
        guard length == .max || length <= available, let start = Int64(exactly: offset) else { return nil }
        self.descriptor = descriptor
        closesDescriptor = closes
        position = start
        left = length == .max ? available : length
    }

    deinit { if closesDescriptor { close(descriptor) } }

    override var remaining: UInt64? { left }

    override func read(into buffer: UnsafeMutableRawBufferPointer) -> BodyRead {
        let wanted = Int(min(UInt64(buffer.count), left))
        guard wanted > 0 else { return left == 0 ? .end(0) : .bytes(0) }
        var result: Int
        repeat { result = pread(descriptor, buffer.baseAddress, wanted, Int(position)) } while result < 0 && errno == EINTR
        guard result > 0 else { return .failed }
        position += Int64(result)
        left -= UInt64(result)
        return left == 0 ? .end(result) : .bytes(result)
    }
}

/// A body that the program produces piece by piece.
final class PulledSource: BodySource, @unchecked Sendable {
    private let handler: Handler<blip_body_fn>
    private var hasEnded = false

    init(_ handler: Handler<blip_body_fn>) { self.handler = handler }

    override var remaining: UInt64? { hasEnded ? 0 : nil }

    override func read(into buffer: UnsafeMutableRawBufferPointer) -> BodyRead {
        guard !hasEnded, let function = handler.function else { return .end(0) }
        guard buffer.count > 0 else { return .bytes(0) }
        var written = 0
        let status = function(buffer.baseAddress, buffer.count, &written, handler.context)
        guard written >= 0, written <= buffer.count else { return .failed }
        switch status {
        case BLIP_OK: return written > 0 ? .bytes(written) : .failed
        case BLIP_DATA_END:
            hasEnded = true
            return .end(written)
        case BLIP_AGAIN: return written > 0 ? .bytes(written) : .wait
        default: return .failed
        }
    }
}
