import CBLIP

/// Marks of a connection's backlog, and what the program was told last. The loop's.
final class BacklogMarks {
    let low: UInt64
    let high: UInt64
    let handler: Handler<blip_backlog_fn>
    /// Nil: nothing was told yet.
    var isAbove: Bool?
    /// A look at the backlog is on its way through the loop.
    var isPosted = false

    init(low: UInt64, high: UInt64, _ handler: Handler<blip_backlog_fn>) {
        self.low = low
        self.high = high
        self.handler = handler
    }

    /// What is to be told of a backlog of so many bytes: once above the high mark, until it has fallen to the low one.
    func news(of backlog: UInt64) -> Bool? {
        guard let isAbove else { return backlog > high }
        if isAbove { return backlog <= low ? false : nil }
        return backlog > high ? true : nil
    }
}
