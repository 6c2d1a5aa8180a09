/// Counts values in buckets whose width grows with the value: any percentile within 1 part in 64, in 30 kB of memory.
struct Histogram {
    private static let subBuckets: UInt64 = 64
    private var counts = [UInt64](repeating: 0, count: 59 * 64)
    private(set) var count: UInt64 = 0
    private(set) var minimum = UInt64.max
    private(set) var maximum: UInt64 = 0
    private var sum = 0.0

    mutating func record(_ value: UInt64) {
        counts[Self.bucket(value)] += 1
        count += 1
        minimum = min(minimum, value)
        maximum = max(maximum, value)
        sum += Double(value)
    }

    var mean: Double {
        count == 0 ? 0 : sum / Double(count)
    }

    /// The smallest value that at least this share (0…1) of all values do not exceed.
    func percentile(_ share: Double) -> UInt64 {
        guard count > 0 else { return 0 }
        let wanted = max(1, (share * Double(count)).rounded(.up))
        var seen: UInt64 = 0
        for (index, number) in counts.enumerated() {
            seen += number
            if Double(seen) >= wanted {
                return min(max(Self.middle(of: index), minimum), maximum)
            }
        }
        return maximum
    }

    private static func bucket(_ value: UInt64) -> Int {
        guard value >= subBuckets else { return Int(value) }
        let shift = UInt64(63 - value.leadingZeroBitCount - 6)
        return Int((shift + 1) * subBuckets + (value >> shift) - subBuckets)
    }

    private static func middle(of index: Int) -> UInt64 {
        let index = UInt64(index)
        guard index >= subBuckets else { return index }
        let shift = index / subBuckets - 1
        let low = (index % subBuckets + subBuckets) << shift
        return low + (UInt64(1) << shift) / 2
    }
}
