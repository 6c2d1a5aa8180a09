import Testing

@testable import WebSocketProtocol

@Suite("Masking keys")
struct MaskKeyGeneratorTests {
    @Test("The block function gives the block of RFC 8439 §2.3.2")
    func block() {
        func word(_ a: UInt32, _ b: UInt32, _ c: UInt32, _ d: UInt32) -> SIMD4<UInt32> { SIMD4(a, b, c, d) }
        let key = ChaCha.Key(
            low: word(0x0302_0100, 0x0706_0504, 0x0B0A_0908, 0x0F0E_0D0C),
            high: word(0x1312_1110, 0x1716_1514, 0x1B1A_1918, 0x1F1E_1D1C))
        let block = ChaCha.block(key: key, tail: word(1, 0x0900_0000, 0x4A00_0000, 0), rounds: 20)
        #expect(block.0 == word(0xE4E7_F110, 0x1559_3BD1, 0x1FDD_0F50, 0xC471_20A3))
        #expect(block.1 == word(0xC7F4_D1C7, 0x0368_C033, 0x9AAA_2204, 0x4E6C_D4C3))
        #expect(block.2 == word(0x4664_82D2, 0x09AA_9F07, 0x05D7_C214, 0xA202_8BD9))
        #expect(block.3 == word(0xD19C_12B5, 0xB94E_16DE, 0xE883_D0CB, 0x4E3C_50A2))
    }

    @Test("The keys are the second halves of blocks whose first halves are the next keys")
    func chain() {
        let entropy = Array(UInt8(0)..<32)
        var generator = entropy.withUnsafeBytes { MaskKeyGenerator(entropy: $0) }
        var key = ChaCha.Key(
            low: SIMD4(0x0302_0100, 0x0706_0504, 0x0B0A_0908, 0x0F0E_0D0C),
            high: SIMD4(0x1312_1110, 0x1716_1514, 0x1B1A_1918, 0x1F1E_1D1C))
        for _ in 0..<3 {
            let block = ChaCha.block(key: key, tail: SIMD4(), rounds: 8)
            for row in [block.2, block.3] {
                for index in 0..<4 { #expect(generator.next() == row[index]) }
            }
            key = ChaCha.Key(low: block.0, high: block.1)
        }
    }

    @Test("Equal entropy gives equal keys, other entropy others, and none comes back soon")
    func keys() {
        func make(_ entropy: [UInt8]) -> MaskKeyGenerator {
            entropy.withUnsafeBytes { MaskKeyGenerator(entropy: $0) }
        }
        var random = Random(seed: 1)
        let entropy = random.bytes(32)
        var a = make(entropy)
        var b = make(entropy + [1, 2, 3])
        var c = make(Array(entropy.dropLast()) + [entropy[31] ^ 1])
        var short = make([1])
        var empty = make([])
        var keys: Set<UInt32> = []
        var bits = 0
        for _ in 0..<10_000 {
            let key = a.next()
            #expect(key == b.next())
            keys.insert(key)
            bits += key.nonzeroBitCount
            keys.insert(c.next())
        }
        #expect(short.next() != empty.next())
        #expect(keys.count > 19_900)
        #expect(abs(bits - 160_000) < 2_000)
    }
}
