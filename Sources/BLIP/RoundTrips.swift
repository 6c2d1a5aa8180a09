/// How long requests took from their sending to their response, as counts in log-linear buckets, which can be added up.
struct RoundTrips: Sendable {
    /// Below 1,024 ns; then eight buckets for each power of two up to 2^41 ns; then the rest.
    static let bucketCount = 1 + 31 * 8 + 1

    /// Empty, or `bucketCount` numbers.
    private(set) var counts: [UInt64] = []
    /// Nanoseconds.
    private(set) var sum: UInt64 = 0

    init() {}

    init(counts: [UInt64], sum: UInt64) {
        self.counts = counts
        self.sum = sum
    }

    @inline(__always)
    static func bucket(of nanoseconds: UInt64) -> Int {
        guard nanoseconds >= 1 << 10 else { return 0 }
        guard nanoseconds < 1 << 41 else { return bucketCount - 1 }
        let exponent = 63 &- nanoseconds.leadingZeroBitCount
        return 1 &+ (exponent &- 10) &* 8 &+ Int(truncatingIfNeeded: nanoseconds >> UInt64(exponent &- 3)) &- 8
    }

    /// The first number of nanoseconds that is above the bucket; nil for the last one.
    static func end(of bucket: Int) -> UInt64? {
        guard bucket > 0 else { return 1 << 10 }
        guard bucket < bucketCount - 1 else { return nil }
        let exponent = UInt64((bucket - 1) / 8 + 10)
        return (UInt64((bucket - 1) % 8) + 9) << (exponent - 3)
    }

    var count: UInt64 { counts.reduce(0, &+) }

    /// Adds what has changed from `old` to `new`.
    mutating func add(_ new: Self, since old: Self = Self()) {
        if counts.isEmpty { counts = [UInt64](repeating: 0, count: Self.bucketCount) }
        for index in new.counts.indices {
            counts[index] &+= new.counts[index] &- (old.counts.isEmpty ? 0 : old.counts[index])
        }
        sum &+= new.sum &- old.sum
    }

    /// The nanoseconds that at least `share` (0 to 1) of all do not exceed: the end of their bucket. Nil if there are none.
    func percentile(_ share: Double) -> UInt64? {
        let all = count
        guard all > 0 else { return nil }
        let wanted = max(1, (share * Double(all)).rounded(.up))
        var seen: UInt64 = 0
        for (bucket, number) in counts.enumerated() {
            seen &+= number
            if Double(seen) >= wanted { return Self.end(of: bucket) ?? 1 << 41 }
        }
        return 1 << 41
    }
}
