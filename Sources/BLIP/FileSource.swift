import BLIPProtocol
import Glibc
import Synchronization

/// A range of a regular file, read from its descriptor without moving the file's position.
final class FileSource: BodySource, @unchecked Sendable {
    private let descriptor: Int32
    private let closesDescriptor: Bool
    private var position: Int64
    /// Atomic, as are the positions of other sources: any thread may ask for the size of a body.
    private let left: Atomic<UInt64>

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
        left = Atomic(length == .max ? available : length)
    }

    deinit { if closesDescriptor { close(descriptor) } }

    override var remaining: UInt64? { left.load(ordering: .relaxed) }

    override func read(into buffer: UnsafeMutableRawBufferPointer) -> BodyRead {
        let left = left.load(ordering: .relaxed)
        let wanted = Int(min(UInt64(buffer.count), left))
        guard wanted > 0 else { return left == 0 ? .end(0) : .bytes(0) }
        var result: Int
        repeat {
            result = pread(descriptor, buffer.baseAddress, wanted, Int(position))
        } while result < 0 && errno == EINTR
        guard result > 0 else { return .failed }
        position += Int64(result)
        self.left.store(left - UInt64(result), ordering: .relaxed)
        return left == UInt64(result) ? .end(result) : .bytes(result)
    }
}
