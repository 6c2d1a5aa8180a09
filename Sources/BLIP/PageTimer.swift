import Transport

/// The timer of an HTTP connection.
final class PageTimer: LoopTimer, @unchecked Sendable {
    /// Cleared when the connection ends, which cuts the cycle between the two.
    var page: HTTPConnection?

    override func fire() { page?.timerDidFire() }
}
