import BLIPProtocol
import CBLIP
import Synchronization

/// A body that the program produces piece by piece.
final class PulledSource: BodySource, @unchecked Sendable {
    private let handler: Handler<blip_body_fn>
    private let hasEnded = Atomic<Bool>(false)

    init(_ handler: Handler<blip_body_fn>) { self.handler = handler }

    override var remaining: UInt64? { hasEnded.load(ordering: .relaxed) ? 0 : nil }

    override func read(into buffer: UnsafeMutableRawBufferPointer) -> BodyRead {
        guard !hasEnded.load(ordering: .relaxed), let function = handler.function else { return .end(0) }
        guard buffer.count > 0 else { return .bytes(0) }
        var written = 0
        let status = function(buffer.baseAddress, buffer.count, &written, handler.context)
        guard written >= 0, written <= buffer.count else { return .failed }
        switch status {
        case BLIP_OK: return written > 0 ? .bytes(written) : .failed
        case BLIP_DATA_END:
            hasEnded.store(true, ordering: .relaxed)
            return .end(written)
        case BLIP_AGAIN: return written > 0 ? .bytes(written) : .wait
        default: return .failed
        }
    }
}
