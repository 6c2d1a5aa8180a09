import Synchronization

/// Counts times in buckets that are an eighth of a power of two wide, from a microsecond to half an hour.
///
/// One thread records, with plain loads and stores; any may read meanwhile.
final class RoundTripHistogram: @unchecked Sendable {
    private let counts: UnsafeMutablePointer<Atomic<UInt64>>
    private let sum = Atomic<UInt64>(0)

    init() {
        counts = .allocate(capacity: RoundTrips.bucketCount)
        for index in 0..<RoundTrips.bucketCount { (counts + index).initialize(to: Atomic(0)) }
    }

    deinit {
        counts.deinitialize(count: RoundTrips.bucketCount)
        counts.deallocate()
    }

    /// One more, of so many nanoseconds. The loop's thread.
    @inline(__always)
    func record(_ nanoseconds: UInt64) {
        let index = RoundTrips.bucket(of: nanoseconds)
        counts[index].store(counts[index].load(ordering: .relaxed) &+ 1, ordering: .relaxed)
        sum.store(sum.load(ordering: .relaxed) &+ nanoseconds, ordering: .relaxed)
    }

    func read() -> RoundTrips {
        RoundTrips(
            counts: (0..<RoundTrips.bucketCount).map { counts[$0].load(ordering: .relaxed) },
            sum: sum.load(ordering: .relaxed))
    }
}
