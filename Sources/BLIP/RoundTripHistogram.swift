import Synchronization

/// Counts times in buckets that are an eighth of a power of two wide, from a microsecond to half an hour.
///
/// One thread records, with plain loads and stores; any may read meanwhile.
final class RoundTripHistogram: @unchecked Sendable {
    /// The buckets, and behind them the sum. Where messages pass, this is used without counting references.
    let counts: UnsafeMutablePointer<Atomic<UInt64>>

    /// One that has counted `known` already.
    init(_ known: RoundTrips = RoundTrips()) {
        counts = .allocate(capacity: RoundTrips.bucketCount + 1)
        for index in 0..<RoundTrips.bucketCount {
            (counts + index).initialize(to: Atomic(index < known.counts.count ? known.counts[index] : 0))
        }
        (counts + RoundTrips.bucketCount).initialize(to: Atomic(known.sum))
    }

    deinit {
        counts.deinitialize(count: RoundTrips.bucketCount + 1)
        counts.deallocate()
    }

    /// One more in a histogram's `counts`, of so many nanoseconds. The loop's thread.
    @inline(__always)
    static func record(_ nanoseconds: UInt64, in counts: UnsafeMutablePointer<Atomic<UInt64>>) {
        add(1, to: counts + RoundTrips.bucket(of: nanoseconds))
        add(nanoseconds, to: counts + RoundTrips.bucketCount)
    }

    @inline(__always)
    private static func add(_ amount: UInt64, to count: UnsafeMutablePointer<Atomic<UInt64>>) {
        count.pointee.store(count.pointee.load(ordering: .relaxed) &+ amount, ordering: .relaxed)
    }

    func read() -> RoundTrips {
        RoundTrips(
            counts: (0..<RoundTrips.bucketCount).map { counts[$0].load(ordering: .relaxed) },
            sum: counts[RoundTrips.bucketCount].load(ordering: .relaxed))
    }
}
