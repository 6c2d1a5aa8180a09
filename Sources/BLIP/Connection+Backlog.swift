import BLIPProtocol
import CBLIP
import Synchronization
import Transport

extension Connection {
    /// Sets, or takes away, whom to tell that the backlog passes its marks. Any thread.
    public func setBacklog(low: UInt64, high: UInt64, _ handler: Handler<blip_backlog_fn>) -> blip_status {
        guard low <= high else { return BLIP_ERROR_ARGUMENT }
        guard state != BLIP_STATE_CLOSED else { return BLIP_ERROR_CLOSED }
        let isWanted = handler.function != nil || configuration.queue != nil
        let done = loop.post { [self] in
            guard phase != .closed else { return }
            let old = marks
            marks = isWanted ? BacklogMarks(low: low, high: high, handler) : nil
            _ = consume old
            tellBacklog()
        }
        return done ? BLIP_OK : BLIP_ERROR_CLOSED
    }

    /// The backlog has changed. Nothing is told inside the call or the output that changes it.
    @inline(__always)
    func backlogDidChange() {
        if marks != nil { considerBacklog() }
    }

    @inline(never)
    private func considerBacklog() {
        guard let marks, !marks.isPosted, marks.news(of: backlogBytes) != nil else { return }
        marks.isPosted = loop.post { [self] in
            self.marks?.isPosted = false
            tellBacklog()
        }
    }

    private func tellBacklog() {
        let bytes = backlogBytes
        guard phase != .closed, let marks, let isAbove = marks.news(of: bytes) else { return }
        marks.isAbove = isAbove
        deliver(
            Event(
                .backlog(marks.handler), status: isAbove ? BLIP_AGAIN : BLIP_OK, value: Int64(clamping: bytes),
                connection: self))
    }

    /// The connection has ended: nothing more is told.
    func endBacklog() {
        let old = marks
        marks = nil
        _ = consume old
    }
}
