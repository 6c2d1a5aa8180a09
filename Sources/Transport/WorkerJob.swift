/// Something that may block, for a thread of a `WorkerPool`.
public protocol WorkerJob: AnyObject {
    /// Called once, on one of the pool's threads.
    func work()
}
