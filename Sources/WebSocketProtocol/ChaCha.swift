/// The ChaCha block function (RFC 8439 §2.3).
///
/// Word by word, not a row at a time: the compiler takes vector rotations apart again, which costs several times as
/// much.
enum ChaCha {
    /// The eight key words.
    struct Key: Sendable {
        var low: SIMD4<UInt32>
        var high: SIMD4<UInt32>
    }

    /// One block of 16 words. `tail`: the block counter and the nonce. `rounds`: an even number.
    static func block(
        key: Key, tail: SIMD4<UInt32>, rounds: Int
    ) -> (SIMD4<UInt32>, SIMD4<UInt32>, SIMD4<UInt32>, SIMD4<UInt32>) {
        let head = SIMD4<UInt32>(0x6170_7865, 0x3320_646E, 0x7962_2D32, 0x6B20_6574)
        var (a0, a1, a2, a3) = (head[0], head[1], head[2], head[3])
        var (b0, b1, b2, b3) = (key.low[0], key.low[1], key.low[2], key.low[3])
        var (c0, c1, c2, c3) = (key.high[0], key.high[1], key.high[2], key.high[3])
        var (d0, d1, d2, d3) = (tail[0], tail[1], tail[2], tail[3])
        for _ in 0..<max(0, rounds) / 2 {
            quarter(&a0, &b0, &c0, &d0)
            quarter(&a1, &b1, &c1, &d1)
            quarter(&a2, &b2, &c2, &d2)
            quarter(&a3, &b3, &c3, &d3)
            quarter(&a0, &b1, &c2, &d3)
            quarter(&a1, &b2, &c3, &d0)
            quarter(&a2, &b3, &c0, &d1)
            quarter(&a3, &b0, &c1, &d2)
        }
        return (
            SIMD4(a0, a1, a2, a3) &+ head, SIMD4(b0, b1, b2, b3) &+ key.low, SIMD4(c0, c1, c2, c3) &+ key.high,
            SIMD4(d0, d1, d2, d3) &+ tail
        )
    }

    @inline(__always)
    private static func quarter(_ a: inout UInt32, _ b: inout UInt32, _ c: inout UInt32, _ d: inout UInt32) {
        a &+= b
        d = rotate(d ^ a, 16)
        c &+= d
        b = rotate(b ^ c, 12)
        a &+= b
        d = rotate(d ^ a, 8)
        c &+= d
        b = rotate(b ^ c, 7)
    }

    @inline(__always)
    private static func rotate(_ word: UInt32, _ count: UInt32) -> UInt32 {
        (word &<< count) | (word &>> (32 &- count))
    }
}
