/// A deadline in an event loop's heap; confined to that loop's thread.
///
/// Subclass it and override `fire`. The loop keeps a scheduled timer alive until it fires or is cancelled.
open class LoopTimer: @unchecked Sendable {
    // Sendable: touched on its loop's thread only.

    /// Nanoseconds of the monotonic clock; meaningful while `isScheduled`.
    public internal(set) final var deadline: UInt64 = 0
    final var heapIndex: Int32 = -1

    public init() {}

    /// Whether the timer waits in a loop's heap.
    public final var isScheduled: Bool { heapIndex >= 0 }

    /// Called on the loop's thread at or after the deadline, when the timer is no longer scheduled.
    /// It may schedule itself again.
    open func fire() {}
}
