/// The ChaCha block function (RFC 8439 §2.3), a row of the state at a time.
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
        var a = head
        var b = key.low
        var c = key.high
        var d = tail
        for _ in 0..<max(0, rounds) / 2 {
            quarter(&a, &b, &c, &d)
            b = SIMD4(b[1], b[2], b[3], b[0])
            c = SIMD4(c[2], c[3], c[0], c[1])
            d = SIMD4(d[3], d[0], d[1], d[2])
            quarter(&a, &b, &c, &d)
            b = SIMD4(b[3], b[0], b[1], b[2])
            c = SIMD4(c[2], c[3], c[0], c[1])
            d = SIMD4(d[1], d[2], d[3], d[0])
        }
        return (a &+ head, b &+ key.low, c &+ key.high, d &+ tail)
    }

    @inline(__always)
    private static func quarter(
        _ a: inout SIMD4<UInt32>, _ b: inout SIMD4<UInt32>, _ c: inout SIMD4<UInt32>, _ d: inout SIMD4<UInt32>
    ) {
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
    private static func rotate(_ row: SIMD4<UInt32>, _ count: UInt32) -> SIMD4<UInt32> {
        (row &<< SIMD4(repeating: count)) | (row &>> SIMD4(repeating: 32 &- count))
    }
}
