import Testing

@testable import WebSocketProtocol

@Suite("UTF-8 in pieces")
struct UTF8ValidatorTests {
    private func check(_ bytes: [UInt8]) -> Bool { bytes.withUnsafeBytes { UTF8Validator.isValid($0) } }

    @Test("Every character is taken, and every surrogate refused")
    func everyScalar() {
        for value: UInt32 in 0...0x10FFFF {
            guard let scalar = Unicode.Scalar(value) else { continue }
            if !check(Array(String(Character(scalar)).utf8)) { Issue.record("U+\(String(value, radix: 16))") }
        }
        for value: UInt32 in 0xD800...0xDFFF {
            let bytes = [0xED, UInt8(0x80 | value >> 6 & 0x3F), UInt8(0x80 | value & 0x3F)]
            if check(bytes) { Issue.record("surrogate \(String(value, radix: 16))") }
        }
    }

    @Test("All pairs and many quadruples agree with the standard library")
    func agreement() {
        for first in UInt8.min...UInt8.max {
            for second in UInt8.min...UInt8.max {
                let bytes = [first, second]
                if check(bytes) != (String(validating: bytes, as: UTF8.self) != nil) { Issue.record("\(bytes)") }
            }
        }
        var random = Random(seed: 11)
        let likely: [UInt8] = [0x41, 0x7F, 0x80, 0x8F, 0x90, 0x9F, 0xA0, 0xBF, 0xC1, 0xC2, 0xDF, 0xE0, 0xED, 0xEF]
        for _ in 0..<200_000 {
            let bytes = (0..<4).map { _ in
                random.next() % 4 == 0 ? UInt8(0xF0 + random.next() % 6) : likely[Int(random.next() % 14)]
            }
            if check(bytes) != (String(validating: bytes, as: UTF8.self) != nil) { Issue.record("\(bytes)") }
        }
    }

    @Test("Cut anywhere, the answer is the same, and the fault is found at its byte")
    func pieces() {
        let good = Array("aé漢\u{1F600}0123456789é0123456789012345\u{10FFFF}".utf8)
        for cut in 0...good.count {
            var validator = UTF8Validator()
            let parts = [Array(good[..<cut]), Array(good[cut...])]
            for part in parts { #expect(part.withUnsafeBytes { validator.consume($0) }) }
            #expect(validator.isComplete)
        }
        for (bytes, fault) in [
            ([0x61, 0xC0], 1), ([0xE0, 0x9F], 1), ([0xED, 0xA0], 1), ([0xF0, 0x8F], 1), ([0xF4, 0x90], 1),
            ([0xE2, 0x82, 0x41], 2), ([0xF5], 0), ([0x80], 0), ([0xF0, 0x9F, 0x98, 0xC3], 3),
        ] as [([UInt8], Int)] {
            var validator = UTF8Validator()
            for (index, byte) in bytes.enumerated() {
                #expect([byte].withUnsafeBytes { validator.consume($0) } == (index < fault), "\(bytes)")
                if index == fault { break }
            }
        }
    }
}
