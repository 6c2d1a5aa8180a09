import Synchronization

/// Something to ask the system's resolver, which may block: done on a thread for that, finished on the loop.
public class ResolverJob: LoopWork, WorkerJob, @unchecked Sendable {
    // Sendable: what subclasses keep is touched on the resolver's thread before posting, on the loop's thread after it.
    private static let pool = WorkerPool(name: "blip-resolver", maximumThreads: 4)

    final let loop: EventLoop
    /// What is looked up, for error texts.
    final let name: String
    fileprivate final let isCancelled = Atomic<Bool>(false)

    init(loop: EventLoop, name: String) {
        self.loop = loop
        self.name = name
    }

    /// Forgets the lookup; its completion is never called. Loop thread only.
    public func cancel() {
        isCancelled.store(true, ordering: .relaxed)
    }

    /// Asks the system; blocks.
    func ask() {}

    /// There is no thread for it.
    func fail(_ error: TransportError) {}

    /// Asks on a thread of the pool and comes back to the loop. Loop thread only.
    final func start() {
        let code = Self.pool.enqueue(self)
        guard code != 0 else { return }
        fail(.posix(code, "start a thread to look up \(name)"))
        loop.post(self)
    }

    /// On a thread of the pool.
    public final func work() {
        if !isCancelled.load(ordering: .relaxed) { ask() }
        loop.post(self)
    }
}
