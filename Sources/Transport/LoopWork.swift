import Synchronization

/// Something an event loop runs once on its thread: posted from any thread, or put at the end of a turn.
///
/// The object is its own queue node, so posting allocates nothing. The loop keeps it alive until it has run.
open class LoopWork: @unchecked Sendable {
    // Sendable: `next` belongs to whoever holds the node exclusively (the poster until it is published, then the loop).
    var next: UnsafeMutableRawPointer?
    let isQueued = Atomic<Bool>(false)

    public init() {}

    /// Called on the loop's thread, once for each time that `EventLoop.post` or `atEndOfTurn` took the object.
    open func run() {}
}

/// A closure as work, made by `EventLoop.post(_:)`.
final class ClosureWork: LoopWork, @unchecked Sendable {
    private let body: @Sendable () -> Void

    init(_ body: @escaping @Sendable () -> Void) {
        self.body = body
    }

    override func run() { body() }
}
