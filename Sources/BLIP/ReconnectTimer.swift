import Transport

/// The time until a reconnector's next try.
final class ReconnectTimer: LoopTimer, @unchecked Sendable {
    /// Cleared when it is not wanted any more, which cuts the cycle between the two.
    var reconnector: Reconnector?

    init(_ reconnector: Reconnector) { self.reconnector = reconnector }

    override func fire() { reconnector?.timerDidFire(self) }
}
