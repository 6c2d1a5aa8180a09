import CSystem
import Transport
import WebSocketProtocol

/// Compares a password with its hash on a thread of its own, because that takes about 50 ms.
///
/// Two threads at most do it, and what waits is bounded: a flood of wrong passwords costs at most those two threads, and
/// who comes in vain is told to come again.
final class PasswordCheck: LoopWork, WorkerJob, @unchecked Sendable {
    // Sendable: `result` is written before posting and read in `run`.

    private static let pool = WorkerPool(name: "blip-password", maximumThreads: 2, capacity: 64)

    private let loop: EventLoop
    private let hash: PasswordHash
    private let password: SecretBytes
    private var result = false
    private let completion: (Bool) -> Void

    /// - Parameter completion: called once, on the loop, if it was begun.
    init(loop: EventLoop, hash: PasswordHash, password: SecretBytes, completion: @escaping (Bool) -> Void) {
        self.loop = loop
        self.hash = hash
        self.password = password
        self.completion = completion
    }

    /// False: too many wait.
    func begin() -> Bool { Self.pool.enqueue(self) == 0 }

    func work() {
        // A process that exits waits for it before OpenSSL is taken down; one that forks, so that no lock is held.
        csystem_begin_work()
        result = hash.check(password)
        loop.post(self)
        csystem_end_work()
    }

    override func run() { completion(result) }
}
