import Transport

/// When a pool next looks for idle connections.
final class PoolTimer: LoopTimer, @unchecked Sendable {
    weak var pool: Pool?

    init(_ pool: Pool) { self.pool = pool }

    override func fire() { pool?.timerDidFire() }
}
