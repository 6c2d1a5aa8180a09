import BLIPProtocol
import CBLIP
import Synchronization

/// Bytes that the library holds for a later part of a body.
final class CopiedSource: BodySource, @unchecked Sendable {
    private let text: Text
    private let position = Atomic<Int>(0)

    init(_ bytes: UnsafeRawBufferPointer) { text = Text(bytes) }

    override var remaining: UInt64? { UInt64(text.count - position.load(ordering: .relaxed)) }

    override func read(into buffer: UnsafeMutableRawBufferPointer) -> BodyRead {
        let position = position.load(ordering: .relaxed)
        let count = min(buffer.count, text.count - position)
        if count > 0, let data = text.slice.data {
            buffer.copyMemory(from: UnsafeRawBufferPointer(start: data + position, count: count))
        }
        self.position.store(position + count, ordering: .relaxed)
        return position + count == text.count ? .end(count) : .bytes(count)
    }
}
