import Transport

/// The passwords of one listener's clients that wait to be compared with their hashes.
///
/// Two threads of the process at most do that. What waits is bounded for each listener, and listeners take turns: a flood of
/// wrong passwords costs those two threads, and of who comes in vain only that listener's clients are told to come again.
final class PasswordLine: WorkerJob, Sendable {
    private static let pool = WorkerPool(name: "blip-password", maximumThreads: threads)
    private static let threads = 2
    private static let capacity = 64

    private struct State {
        var waiting: [PasswordCheck] = []
        /// How often it stands in the pool's queue, or is at work.
        var turns = 0
    }

    private let state = Locked(State())

    /// Any thread. False: too many wait, or there is no thread.
    func add(_ check: PasswordCheck) -> Bool {
        let needsTurn = state.withLock { state -> Bool? in
            guard state.waiting.count < Self.capacity else { return nil }
            state.waiting.append(check)
            guard state.turns < Self.threads else { return false }
            state.turns += 1
            return true
        }
        guard let needsTurn else { return false }
        guard needsTurn, Self.pool.enqueue(self) != 0 else { return true }
        return state.withLock { state in
            state.turns -= 1
            guard let index = state.waiting.firstIndex(where: { $0 === check }) else { return true }
            state.waiting.remove(at: index)
            return false
        }
    }

    /// One turn: one password, then others come first.
    func work() {
        let check = state.withLock { $0.waiting.isEmpty ? nil : $0.waiting.removeFirst() }
        check?.work()
        let goesOn = state.withLock { state -> Bool in
            if state.waiting.isEmpty { state.turns -= 1 }
            return !state.waiting.isEmpty
        }
        // It cannot fail on a thread of the pool; if it did, the next one to be added would go on.
        if goesOn, Self.pool.enqueue(self) != 0 { state.withLock { $0.turns -= 1 } }
    }
}
