import Transport

/// The one timer of a connection: connecting, keep-alive, closing.
final class ConnectionTimer: LoopTimer, @unchecked Sendable {
    /// Cleared when the connection ends, which cuts the cycle between the two.
    var connection: Connection?

    init(_ connection: Connection) { self.connection = connection }

    override func fire() { connection?.timerDidFire() }
}
