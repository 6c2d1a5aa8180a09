/// The round trips of a connection that has few: up to eight buckets, no more than 255 in each. There may be a million of
/// those, and a table of all buckets takes 2 kB.
struct FewRoundTrips {
    // A bucket's number is below 250.
    private var buckets = SIMD8<UInt8>(repeating: 0)
    private var counts = SIMD8<UInt8>(repeating: 0)
    /// Nanoseconds.
    private var sum: UInt64 = 0

    /// False if there is no room for it.
    mutating func record(_ nanoseconds: UInt64) -> Bool {
        let bucket = UInt8(truncatingIfNeeded: RoundTrips.bucket(of: nanoseconds))
        for place in 0..<8 where counts[place] == 0 || buckets[place] == bucket {
            guard counts[place] < .max else { return false }
            buckets[place] = bucket
            counts[place] += 1
            sum &+= nanoseconds
            return true
        }
        return false
    }

    func read() -> RoundTrips {
        guard counts[0] > 0 else { return RoundTrips() }
        var all = [UInt64](repeating: 0, count: RoundTrips.bucketCount)
        for place in 0..<8 where Int(buckets[place]) < all.count {
            all[Int(buckets[place])] &+= UInt64(counts[place])
        }
        return RoundTrips(counts: all, sum: sum)
    }
}
