import CSystem
import Synchronization
import Transport
import WebSocketProtocol

/// Compares passwords with their hashes on threads of its own, because one comparison takes about 50 ms.
///
/// Two threads at most, made on demand; they end after ten seconds without work. What waits is bounded: a flood of wrong
/// passwords costs at most those two threads, and who comes in vain is told to come again.
enum PasswordWorker {
    /// Comparisons that may wait.
    static let capacity = 64

    /// A comparison under way. Its completion is called once, on the loop.
    final class Check: LoopWork, @unchecked Sendable {
        // Sendable: `result` is written before posting and read in `run`.
        fileprivate let loop: EventLoop
        fileprivate let hash: PasswordHash
        fileprivate let password: SecretBytes
        fileprivate var result = false
        private let completion: (Bool) -> Void

        init(loop: EventLoop, hash: PasswordHash, password: SecretBytes, completion: @escaping (Bool) -> Void) {
            self.loop = loop
            self.hash = hash
            self.password = password
            self.completion = completion
        }

        override func run() { completion(result) }
    }

    /// Queues a comparison; false: too many wait.
    static func enqueue(_ check: Check) -> Bool { PasswordPool.current?.enqueue(check) ?? false }
}

/// The threads, and what waits for them.
private final class PasswordPool: @unchecked Sendable {
    // Sendable: the state is touched with the monitor locked only.

    private static let maximumThreads = 2
    private static let idleTime: UInt64 = 10_000_000_000
    private static let shared = Locked<PasswordPool?>(nil)

    private let process = csystem_process()
    private let monitor: OpaquePointer
    private var queue: [PasswordWorker.Check] = []
    private var threads = 0
    private var idleThreads = 0

    private init(_ monitor: OpaquePointer) { self.monitor = monitor }

    /// The pool of this process: threads do not survive a fork, so a child makes its own.
    static var current: PasswordPool? {
        shared.withLock { pool in
            if let pool, pool.process == csystem_process() { return pool }
            guard let monitor = csystem_monitor_new() else { return nil }
            let fresh = PasswordPool(monitor)
            pool = fresh
            return fresh
        }
    }

    func enqueue(_ check: PasswordWorker.Check) -> Bool {
        csystem_monitor_lock(monitor)
        defer { csystem_monitor_unlock(monitor) }
        guard queue.count < PasswordWorker.capacity else { return false }
        queue.append(check)
        if idleThreads >= queue.count || threads >= Self.maximumThreads {
            csystem_monitor_signal(monitor)
            return true
        }
        let context = Unmanaged.passRetained(self)
        var id: UInt64 = 0
        let result = csystem_thread_start(
            "blip-password", true,
            { context in
                guard let context else { return }
                Unmanaged<PasswordPool>.fromOpaque(context).takeRetainedValue().work()
            }, context.toOpaque(), &id)
        if result >= 0 {
            threads += 1
            return true
        }
        context.release()
        if threads > 0 { return true }
        queue.removeAll { $0 === check }
        return false
    }

    private func work() {
        csystem_monitor_lock(monitor)
        while true {
            if queue.isEmpty {
                idleThreads += 1
                let isInTime = csystem_monitor_wait(monitor, csystem_now() &+ Self.idleTime)
                idleThreads -= 1
                if !isInTime, queue.isEmpty { break }
                continue
            }
            let check = queue.removeFirst()
            csystem_monitor_unlock(monitor)
            // A process that exits waits for it before OpenSSL is taken down; one that forks, so that no lock is held.
            csystem_begin_work()
            check.result = check.hash.check(check.password)
            check.loop.post(check)
            csystem_end_work()
            csystem_monitor_lock(monitor)
        }
        threads -= 1
        csystem_monitor_unlock(monitor)
    }
}
