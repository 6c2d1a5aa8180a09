#if canImport(Glibc)
    import Glibc
#elseif canImport(Musl)
    import Musl
#endif

/// The making of prefix codes for deflate (RFC 1951 §3.2.2): the best code lengths for given frequencies, and from
/// lengths the codes.
///
/// The memory belongs to the caller, so that nothing is allocated for a block.
struct PrefixCode {
    /// The most symbols of an alphabet of deflate.
    static let maximumSymbols = 288

    /// A code in the order in which its bits are written, and its length in the upper half.
    typealias Entry = UInt32

    /// The symbols that occur, in their order.
    private let present: UnsafeMutablePointer<UInt32>
    /// The same, the rarest first.
    private let sorted: UnsafeMutablePointer<UInt32>
    private let nodes: UnsafeMutablePointer<UInt32>
    private let counts: UnsafeMutablePointer<UInt32>

    /// The size in bytes of the memory that `init` wants.
    static let scratchSize = (3 * maximumSymbols + bins) * 4
    /// Frequencies up to this are sorted by counting.
    private static let bins = 64

    /// - Parameter scratch: aligned to 4 bytes; used only inside of calls.
    init(scratch: UnsafeMutableRawPointer) {
        present = scratch.assumingMemoryBound(to: UInt32.self)
        sorted = present + Self.maximumSymbols
        nodes = sorted + Self.maximumSymbols
        counts = nodes + Self.maximumSymbols
    }

    /// Makes an optimal code that is complete and has at least two symbols.
    ///
    /// - Parameters:
    ///   - frequencies: `size` of them, whose sum is less than 2^25; if fewer than two are not 0, others are set to 1.
    ///   - size: 2 to `maximumSymbols`.
    ///   - limit: the longest that a code may be, at most 15; 2^limit is at least `size`.
    ///   - lengths: receives `size` lengths; 0 for a symbol that does not occur.
    ///   - entries: receives the codes of symbols that occur.
    /// - Returns: the bits that all symbols take.
    func make(
        _ frequencies: UnsafeMutablePointer<UInt32>, _ size: Int, limit: Int, _ lengths: UnsafeMutablePointer<UInt8>,
        _ entries: UnsafeMutablePointer<Entry>
    ) -> UInt64 {
        let used = list(frequencies, size)
        sort(frequencies, used)
        findDepths(frequencies, used, limit)
        memset(lengths, 0, size)
        var at = 0
        for length in stride(from: limit, through: 1, by: -1) {
            for _ in 0..<counts[length] {
                lengths[Int(sorted[at])] = UInt8(truncatingIfNeeded: length)
                at &+= 1
            }
        }
        return assign(frequencies, used, lengths, entries)
    }

    /// Makes the codes of lengths that are given.
    func assign(_ lengths: UnsafeMutablePointer<UInt8>, _ size: Int, _ entries: UnsafeMutablePointer<Entry>) {
        for length in 0..<16 { counts[length] = 0 }
        for symbol in 0..<size {
            present[symbol] = UInt32(truncatingIfNeeded: symbol)
            sorted[symbol] = 0
            counts[Int(lengths[symbol])] &+= 1
        }
        _ = assign(sorted, size, lengths, entries)
    }

    /// Lists the symbols that occur.
    private func list(_ frequencies: UnsafeMutablePointer<UInt32>, _ size: Int) -> Int {
        var used = 0
        for symbol in 0..<size {
            // Without a branch, which would often be predicted wrong.
            present[used] = UInt32(truncatingIfNeeded: symbol)
            used &+= frequencies[symbol] == 0 ? 0 : 1
        }
        if used >= 2 { return used }
        // A code with one symbol would not be complete, which not every reader takes.
        if frequencies[0] == 0 { frequencies[0] = 1 } else { frequencies[1] = 1 }
        return list(frequencies, size)
    }

    /// Sorts the symbols that occur.
    private func sort(_ frequencies: UnsafePointer<UInt32>, _ used: Int) {
        let top = UInt32(truncatingIfNeeded: Self.bins &- 1)
        for bin in 0..<Self.bins { counts[bin] = 0 }
        for index in 0..<used { counts[Int(min(frequencies[Int(present[index])], top))] &+= 1 }
        var start: UInt32 = 0
        for bin in 0..<Self.bins {
            let count = counts[bin]
            counts[bin] = start
            start &+= count
        }
        let often = Int(counts[Self.bins - 1])
        for index in 0..<used {
            let bin = Int(min(frequencies[Int(present[index])], top))
            sorted[Int(counts[bin])] = present[index]
            counts[bin] &+= 1
        }
        // The last bin holds what is more frequent, in any order; these are few.
        var index = often &+ 1
        while index < used {
            let symbol = sorted[index]
            var at = index
            while at > often, frequencies[Int(sorted[at &- 1])] > frequencies[Int(symbol)] {
                sorted[at] = sorted[at &- 1]
                at &-= 1
            }
            sorted[at] = symbol
            index &+= 1
        }
    }

    /// Counts in `counts` how many codes have which length.
    ///
    /// The tree is built in the memory of its frequencies: A. Moffat, J. Katajainen, "In-Place Calculation of
    /// Minimum-Redundancy Codes", 1995.
    private func findDepths(_ frequencies: UnsafePointer<UInt32>, _ used: Int, _ limit: Int) {
        for index in 0..<used { nodes[index] = frequencies[Int(sorted[index])] }
        // Joins the two rarest of leaves and inner nodes, which both come in ascending order.
        var leaf = 0
        var inner = 0
        for node in 0..<(used &- 1) {
            var sum: UInt32 = 0
            for _ in 0..<2 {
                if leaf < used, inner == node || nodes[leaf] <= nodes[inner] {
                    sum &+= nodes[leaf]
                    leaf &+= 1
                } else {
                    sum &+= nodes[inner]
                    nodes[inner] = UInt32(truncatingIfNeeded: node)
                    inner &+= 1
                }
            }
            nodes[node] = sum
        }
        // Every inner node has its parent's index now: from the root down, depths.
        for length in 0..<16 { counts[length] = 0 }
        nodes[used &- 2] = 0
        var open = 2
        var node = used &- 2
        var depth: UInt32 = 0
        while open > 0 {
            depth &+= 1
            var inners = 0
            while node > 0, nodes[Int(nodes[node &- 1])] &+ 1 == depth {
                node &-= 1
                nodes[node] = depth
                inners &+= 1
            }
            // Those that are too long count as if they were as long as allowed.
            counts[min(Int(depth), limit)] &+= UInt32(truncatingIfNeeded: open &- inners)
            open = 2 &* inners
        }
        var excess = 0 &- (1 &<< limit)
        for length in 1...limit { excess &+= Int(counts[length]) &<< (limit &- length) }
        while excess > 0 {
            // One of the longest codes joins a shorter one, which becomes longer by a bit.
            var length = limit &- 1
            while length > 1, counts[length] == 0 { length &-= 1 }
            counts[length] &-= 1
            counts[length &+ 1] &+= 2
            counts[limit] &-= 1
            excess &-= 1
        }
    }

    /// Makes the codes of the symbols that occur; `counts` has how many have which length.
    private func assign(
        _ frequencies: UnsafePointer<UInt32>, _ used: Int, _ lengths: UnsafePointer<UInt8>,
        _ entries: UnsafeMutablePointer<Entry>
    ) -> UInt64 {
        // The first code of each length takes the place of the number of codes.
        var code: UInt32 = 0
        for length in 1...15 {
            let count = counts[length]
            counts[length] = code
            code = (code &+ count) &<< 1
        }
        var bits: UInt32 = 0
        for index in 0..<used {
            let symbol = Int(present[index])
            let length = Int(lengths[symbol])
            let code = counts[length]
            counts[length] = code &+ 1
            bits &+= frequencies[symbol] &* UInt32(truncatingIfNeeded: length)
            entries[symbol] = Self.reversed(code, length) | UInt32(truncatingIfNeeded: length) &<< 16
        }
        return UInt64(bits)
    }

    /// The lowest `length` bits, at most 16, in reverse order.
    @inline(__always)
    private static func reversed(_ code: UInt32, _ length: Int) -> UInt32 {
        var value = code &<< (16 &- UInt32(truncatingIfNeeded: length))
        value = (value & 0x5555) &<< 1 | (value &>> 1) & 0x5555
        value = (value & 0x3333) &<< 2 | (value &>> 2) & 0x3333
        value = (value & 0x0F0F) &<< 4 | (value &>> 4) & 0x0F0F
        return (value & 0xFF) &<< 8 | (value &>> 8) & 0xFF
    }
}
