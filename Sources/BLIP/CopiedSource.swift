import CBLIP
import BLIPProtocol

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
