import Synchronization

/// Something to ask the system's resolver, which may block: done on a thread of `ResolverPool`, finished on the loop.
public class ResolverJob: LoopWork, @unchecked Sendable {
    // Sendable: what subclasses keep is touched on the resolver's thread before posting, on the loop's thread after it.
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
        if let error = ResolverPool.current.enqueue(self) {
            fail(error)
            loop.post(self)
        }
    }

    /// On a thread of the pool.
    final func work() {
        if !isCancelled.load(ordering: .relaxed) { ask() }
        loop.post(self)
    }
}
