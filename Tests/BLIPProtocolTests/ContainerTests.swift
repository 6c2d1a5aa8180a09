import Testing

@testable import BLIPProtocol

@Suite("Containers")
struct ContainerTests {
    @Test("The number table does what a dictionary does")
    func numberTable() {
        for seed in 0..<6 as Range<UInt64> {
            var random = Seeded(seed)
            var table = NumberTable()
            var model: [UInt64: Message] = [:]
            var next: UInt64 = 1
            for _ in 0..<8000 {
                // Sequential, as it is; or crowded, so that entries collide; or far apart.
                let spread: UInt64 = [1, 64, 4096][Int(seed % 3)]
                if random.next() % 100 < 52 {
                    let message = Message()
                    table.insert(next &* spread, message)
                    model[next &* spread] = message
                    next += 1
                } else if let key = model.keys.randomElement(using: &random) {
                    #expect(table.remove(key) === model.removeValue(forKey: key))
                    #expect(table.find(key) == nil)
                }
                #expect(table.count == model.count)
                if random.next() % 500 == 0 { for (key, message) in model { #expect(table[key] === message) } }
            }
            #expect(
                table.all().map(ObjectIdentifier.init)
                    == model.keys.sorted().compactMap { model[$0].map(ObjectIdentifier.init) })
            #expect(table.find(0) == nil)
            let replaced = Message()
            if let key = model.keys.first {
                table.insert(key, replaced)
                #expect(table[key] === replaced && table.count == model.count)
            }
            table.removeAll()
            #expect(table.count == 0 && table.all().isEmpty)
        }
    }

    @Test("Bytes keep to their maximum and survive every kind of change")
    func bytes() {
        var bytes = Bytes(maximum: 100)
        #expect(bytes.base == nil && bytes.capacity == 0)
        let appended = pattern(60).withUnsafeBytes { bytes.append($0) }
        #expect(appended)
        let refused = pattern(41).withUnsafeBytes { bytes.append($0) }
        #expect(!refused)
        #expect(bytes.count == 60 && Array(bytes.bytes) == pattern(60))
        let (tooMuch, negative, huge) = (bytes.reserve(41), bytes.reserve(-1), bytes.reserve(Int.max))
        #expect(!tooMuch && !negative && !huge)
        let exact = bytes.reserve(40)
        #expect(exact && bytes.capacity <= 100)
        bytes.removeFirst(10)
        #expect(Array(bytes.bytes) == Array(pattern(60).dropFirst(10)))
        [UInt8(1), 2, 3].withUnsafeBytes { _ = bytes.replace(at: 5, 2, with: $0) }
        #expect(bytes.count == 51 && bytes.bytes[5] == 1 && bytes.bytes[8] == 17)
        let outside = [UInt8(1)].withUnsafeBytes { bytes.replace(at: 52, 0, with: $0) }
        #expect(!outside)
        bytes.truncate(to: 3)
        bytes.removeFirst(7)
        let isEmpty = bytes.isEmpty
        #expect(isEmpty)
        bytes.removeAll(keepingCapacity: 1000)
        #expect(bytes.capacity > 0)
        bytes.removeAll()
        #expect(bytes.base == nil)
    }

    @Test("Properties are set, replaced, removed and enumerated in order; the first of a key counts")
    func properties() {
        let message = Message()
        message.add("a", "1")
        message.add("b", "")
        message.add("c", "3")
        message.add("a", "one")
        message.add("b", "two")
        #expect(message.allProperties == [["a", "one"], ["b", "two"], ["c", "3"]])
        Array("b".utf8).withUnsafeBytes { #expect(message.removeProperty($0) && !message.removeProperty($0)) }
        #expect(message.allProperties == [["a", "one"], ["c", "3"]])
        #expect(message.get("b") == nil && message.get("") == nil && message.get("c") == "3")
        Array("a\0x\0a\0y\0".utf8).withUnsafeBytes { _ = message.properties.append($0) }
        #expect(message.get("a") == "one" && message.propertyCount == 4)
        #expect(message.property(at: 4) == nil && message.property(at: -1) == nil)
        func key(_ index: Int) -> String? {
            message.property(at: index).map { String(decoding: $0.key, as: UTF8.self) }
        }
        // In any order, and after changes.
        let keys = ["a", "c", "a", "a"]
        for index in [3, 0, 2, 2, 3, 1, 0, 1, 2, 3] { #expect(key(index) == keys[index]) }
        _ = key(2)
        message.add("a", "longer than before")
        #expect(key(3) == "a")
        Array("a".utf8).withUnsafeBytes { _ = message.removeProperty($0) }
        #expect(key(2) == "a" && key(0) == "c" && key(3) == nil)
        _ = key(1)
        message.properties.replace(at: 0, 4, with: UnsafeRawBufferPointer(start: nil, count: 0))
        #expect(key(1) == "a" && key(2) == nil)
    }

    @Test("To walk over all properties takes a time that grows with their number alone")
    func manyProperties() {
        func time(_ count: Int) -> Duration {
            let message = Message()
            [UInt8](repeating: 0, count: 2 * count).withUnsafeBytes { _ = message.properties.append($0) }
            var seen = 0
            let time = ContinuousClock().measure {
                while message.property(at: seen) != nil { seen += 1 }
            }
            #expect(seen == count)
            return time
        }
        let few = (0..<5).map { _ in time(1000) }.min() ?? .zero
        let many = (0..<3).map { _ in time(16_000) }.min() ?? .zero
        #expect(many < few * 16 * 5, "\(few) for 1000, \(many) for 16000")
    }

    @Test("Well-formed UTF-8 is told from other bytes as the standard library tells it")
    func utf8() {
        var random = Seeded(3)
        let pool: [UInt8] = [
            0x20, 0x7F, 0x80, 0x8F, 0x90, 0x9F, 0xA0, 0xBF, 0xC0, 0xC2, 0xDF, 0xE0, 0xED, 0xEF, 0xF0, 0xF4, 0xF5, 0xFF,
        ]
        for _ in 0..<100_000 {
            let bytes = (0..<Int(random.next() % 6)).map { _ in pool[Int(random.next() % UInt64(pool.count))] }
            let expected = String(validating: bytes, as: UTF8.self) != nil
            #expect(bytes.withUnsafeBytes { PropertyRules.isUTF8($0) } == expected, "\(bytes.hex)")
        }
    }
}
