import CSystem
import Transport
import WebSocketProtocol

/// Compares a password with its hash on another thread (`PasswordLine`), because that takes about 50 ms.
final class PasswordCheck: LoopWork, @unchecked Sendable {
    // Sendable: `result` is written before posting and read in `run`.

    private let loop: EventLoop
    private let hash: PasswordHash
    private let password: SecretBytes
    private var result = false
    private let completion: (Bool) -> Void

    /// - Parameter completion: called once, on the loop, after `work`.
    init(loop: EventLoop, hash: PasswordHash, password: SecretBytes, completion: @escaping (Bool) -> Void) {
        self.loop = loop
        self.hash = hash
        self.password = password
        self.completion = completion
    }

    func work() {
        // A process that exits waits for it before OpenSSL is taken down; one that forks, so that no lock is held.
        csystem_begin_work()
        result = hash.check(password)
        loop.post(self)
        csystem_end_work()
    }

    override func run() { completion(result) }
}
