/// A small seeded generator, so that a run can be repeated.
struct Seeded: RandomNumberGenerator {
    private var state: UInt64

    init(_ seed: UInt64) { state = seed }

    mutating func next() -> UInt64 {
        state &+= 0x9E37_79B9_7F4A_7C15
        var z = state
        z = (z ^ (z >> 30)) &* 0xBF58_476D_1CE4_E5B9
        z = (z ^ (z >> 27)) &* 0x94D0_49BB_1331_11EB
        return z ^ (z >> 31)
    }

    mutating func below(_ bound: Int) -> Int { Int(truncatingIfNeeded: next() % UInt64(max(1, bound))) }

    mutating func oneIn(_ count: Int) -> Bool { below(count) == 0 }

    /// Small numbers as often as large ones.
    mutating func size(_ most: Int) -> Int {
        let bits = below(Int.bitWidth - most.leadingZeroBitCount + 1)
        return min(most, below(1 << bits))
    }
}
