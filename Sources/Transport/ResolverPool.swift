import CSystem
import Glibc

/// The threads of the resolver, and the lookups that wait for one.
final class ResolverPool: @unchecked Sendable {
    // Sendable: the state is touched with the monitor locked only.

    private static let maximumThreads = 4
    private static let idleTime: UInt64 = 10_000_000_000

    private static let shared = Locked<ResolverPool?>(nil)

    private let process = csystem_process()
    private let monitor: OpaquePointer
    private var queue = [ResolverJob]()
    private var threads = 0
    private var idleThreads = 0

    private init(_ monitor: OpaquePointer) {
        self.monitor = monitor
    }

    /// The pool of this process: threads do not survive a fork, so a child makes its own.
    static var current: Handle {
        shared.withLock { pool in
            if let pool, pool.process == csystem_process() { return Handle(pool: pool) }
            guard let monitor = csystem_monitor_new() else { return Handle(pool: nil) }
            let fresh = ResolverPool(monitor)
            pool = fresh
            return Handle(pool: fresh)
        }
    }

    /// The pool, if there was memory for it.
    struct Handle {
        let pool: ResolverPool?

        /// Queues the job for a thread. An error: there is no thread, and none can be made.
        func enqueue(_ job: ResolverJob) -> TransportError? {
            pool.map { $0.enqueue(job) } ?? .posix(ENOMEM, "look up \(job.name)")
        }
    }

    private func enqueue(_ job: ResolverJob) -> TransportError? {
        csystem_monitor_lock(monitor)
        defer { csystem_monitor_unlock(monitor) }
        queue.append(job)
        if idleThreads >= queue.count || threads >= Self.maximumThreads {
            csystem_monitor_signal(monitor)
            return nil
        }
        let context = Unmanaged.passRetained(self)
        var id: UInt64 = 0
        let result = csystem_thread_start(
            "blip-resolver", true,
            { context in
                guard let context else { return }
                Unmanaged<ResolverPool>.fromOpaque(context).takeRetainedValue().work()
            }, context.toOpaque(), &id)
        if result >= 0 {
            threads += 1
            return nil
        }
        context.release()
        if threads > 0 { return nil }
        queue.removeAll { $0 === job }
        return .posix(-result, "start a thread to look up \(job.name)")
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
            let job = queue.removeFirst()
            csystem_monitor_unlock(monitor)
            job.work()
            csystem_monitor_lock(monitor)
        }
        threads -= 1
        csystem_monitor_unlock(monitor)
    }
}
