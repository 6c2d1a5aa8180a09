/// Makes masking keys that a peer cannot predict (RFC 6455 §5.3), from entropy that the caller gives once.
///
/// Each refill is one block of ChaCha with 8 rounds under the present key; the first half of the block becomes the next
/// key, the second half is handed out, eight masking keys at a time. Keys that were handed out cannot be computed back
/// from the state. No system call, no allocation; 80 bytes.
public struct MaskKeyGenerator: Sendable {
    private var key: ChaCha.Key
    private var output = (SIMD4<UInt32>(), SIMD4<UInt32>())
    private var used: UInt8 = 8

    /// `entropy`: 32 bytes from the system's generator (more are not looked at, missing ones count as zero).
    public init(entropy: UnsafeRawBufferPointer) {
        var words = (SIMD4<UInt32>(), SIMD4<UInt32>())
        withUnsafeMutableBytes(of: &words) { target in
            let count = min(entropy.count, target.count)
            UnsafeMutableRawBufferPointer(start: target.baseAddress, count: count)
                .copyMemory(from: UnsafeRawBufferPointer(start: entropy.baseAddress, count: count))
        }
        key = ChaCha.Key(low: words.0, high: words.1)
    }

    /// The next key, as its four bytes lie in memory.
    @inline(__always)
    public mutating func next() -> UInt32 {
        if used >= 8 { refill() }
        let index = Int(used & 3)
        let value = used < 4 ? output.0[index] : output.1[index]
        used &+= 1
        return value
    }

    @inline(never)
    private mutating func refill() {
        let block = ChaCha.block(key: key, tail: SIMD4<UInt32>(), rounds: 8)
        key = ChaCha.Key(low: block.0, high: block.1)
        output = (block.2, block.3)
        used = 0
    }
}
