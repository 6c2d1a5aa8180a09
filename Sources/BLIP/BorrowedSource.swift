import BLIPProtocol
import Synchronization

/// Bytes of the program that are sent from where they lie.
final class BorrowedSource: BodySource, @unchecked Sendable {
    let bytes: UnsafeRawBufferPointer
    private let position = Atomic<Int>(0)
    /// Releases the bytes when the source goes.
    private let holder: Handler<Never>

    init(_ bytes: UnsafeRawBufferPointer, _ holder: Handler<Never>) {
        self.bytes = bytes
        self.holder = holder
    }

    override var remaining: UInt64? { UInt64(bytes.count - position.load(ordering: .relaxed)) }

    override func read(into buffer: UnsafeMutableRawBufferPointer) -> BodyRead {
        let position = position.load(ordering: .relaxed)
        let count = min(buffer.count, bytes.count - position)
        if count > 0 { buffer.copyMemory(from: UnsafeRawBufferPointer(rebasing: bytes[position..<position + count])) }
        self.position.store(position + count, ordering: .relaxed)
        return position + count == bytes.count ? .end(count) : .bytes(count)
    }
}
