import CSystem
import Glibc

/// A few threads for what may block or takes long, made on demand; they end after ten seconds without work.
///
/// Any thread may give it work. Threads do not survive a fork: a child makes its own.
public final class WorkerPool: @unchecked Sendable {
    // Sendable: the crew is behind a lock, the rest never changes.

    private static let idleTime: UInt64 = 10_000_000_000

    private let name: StaticString
    private let maximumThreads: Int
    private let crew = Locked<Crew?>(nil)

    /// - Parameters:
    ///   - name: of its threads.
    public init(name: StaticString, maximumThreads: Int) {
        self.name = name
        self.maximumThreads = maximumThreads
    }

    /// Queues a job: 0; or the errno of why it will not be done.
    public func enqueue(_ job: any WorkerJob) -> Int32 {
        let crew = crew.withLock { crew -> Crew? in
            if let crew, crew.process == csystem_process() { return crew }
            guard let monitor = csystem_monitor_new() else { return nil }
            let fresh = Crew(monitor)
            crew = fresh
            return fresh
        }
        return crew?.enqueue(job, self) ?? ENOMEM
    }

    /// The threads of one process, and what waits for them.
    private final class Crew: @unchecked Sendable {
        // Sendable: the state is touched with the monitor locked only.

        let process = csystem_process()
        private let monitor: OpaquePointer
        private var queue: [any WorkerJob] = []
        private var threads = 0
        private var idleThreads = 0

        init(_ monitor: OpaquePointer) { self.monitor = monitor }

        func enqueue(_ job: any WorkerJob, _ pool: WorkerPool) -> Int32 {
            csystem_monitor_lock(monitor)
            defer { csystem_monitor_unlock(monitor) }
            queue.append(job)
            if idleThreads >= queue.count || threads >= pool.maximumThreads {
                csystem_monitor_signal(monitor)
                return 0
            }
            let context = Unmanaged.passRetained(self)
            var id: UInt64 = 0
            let result = csystem_thread_start(
                UnsafeRawPointer(pool.name.utf8Start).assumingMemoryBound(to: CChar.self), true,
                { context in
                    guard let context else { return }
                    Unmanaged<Crew>.fromOpaque(context).takeRetainedValue().work()
                }, context.toOpaque(), &id)
            if result >= 0 {
                threads += 1
                return 0
            }
            context.release()
            if threads > 0 { return 0 }
            queue.removeAll { $0 === job }
            return -result
        }

        private func work() {
            csystem_monitor_lock(monitor)
            while true {
                if queue.isEmpty {
                    idleThreads += 1
                    let isInTime = csystem_monitor_wait(monitor, csystem_now() &+ WorkerPool.idleTime)
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
}
