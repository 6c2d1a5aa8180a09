import Testing
import WebSocketProtocol

@Suite("Random bytes")
struct GarbageTests {
    /// Bytes that are frames more often than chance would have it.
    private func likely(_ random: inout Random, masked: Bool) -> [UInt8] {
        var bytes: [UInt8] = []
        let firsts: [UInt8] = [0x00, 0x01, 0x02, 0x80, 0x80, 0x81, 0x82, 0x82, 0x88, 0x89, 0x8A]
        for _ in 0..<(1 + random.next() % 5) {
            let roll = random.next()
            let first =
                roll % 16 == 0
                ? UInt8(truncatingIfNeeded: roll >> 8) : firsts[Int((roll >> 8) % UInt64(firsts.count))]
            let length = Int(random.next() % 12)
            let isOdd = random.next() % 32 == 0
            var payload = random.bytes(length)
            if random.next() % 2 == 0 { payload = payload.map { $0 & 0x7F } }
            if first == 0x88, length >= 2 {
                payload[0] = 3
                payload[1] = 0xE8
            }
            bytes += frame(first, payload, mask: masked != isOdd ? random.bytes(4) : nil)
        }
        if random.next() % 4 == 0 { bytes = Array(bytes.dropLast(Int(random.next() & 7))) }
        return bytes
    }

    @Test("200,000 random buffers neither trap nor stall the parser, and cutting them changes nothing")
    func frames() {
        var random = Random(seed: 20261130)
        var kinds: Set<UInt16> = []
        var messages = 0
        for round in 0..<200_000 {
            let role: WebSocketRole = round % 2 == 0 ? .server : .client
            let bytes =
                round % 3 == 0
                ? random.bytes(Int(random.next() % 24)) : likely(&random, masked: role == .server)
            let maximum = round % 5 == 0 ? 16 : 1 << 16
            let whole = parse([bytes], role: role, maximum: maximum, shift: round & 7)
            if !whole.isSane { Issue.record("round \(round): \(bytes)") }
            for seen in whole.seen {
                switch seen {
                case .failed(let code): kinds.insert(code)
                case .binary, .text: messages += 1
                default: break
                }
            }
            guard round % 10 == 0 else { continue }
            let cut = bytes.isEmpty ? 0 : Int(random.next() % UInt64(bytes.count))
            let halves = parse([Array(bytes[..<cut]), Array(bytes[cut...])], role: role, maximum: maximum)
            let isClosed = whole.seen.contains { if case .close = $0 { true } else { false } }
            if !isClosed, halves.seen != whole.seen || !halves.isSane {
                Issue.record("round \(round), cut at \(cut): \(bytes)")
            }
        }
        #expect(kinds == [1002, 1007, 1009])
        #expect(messages > 30_000)
    }

    @Test("Random changes of good heads neither trap nor consume what is not there")
    func heads() {
        var random = Random(seed: 7)
        let request = Array(HTTPHeadParserTests.upgrade.utf8)
        let response = Array("HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nX: y\r\n\r\n".utf8)
        let likely: [UInt8] = [0x0D, 0x0A, 0x20, 0x09, 0x3A, 0x00, 0xFF, 0x2C, 0x41]
        for round in 0..<20_000 {
            let isRequest = round % 2 == 0
            var bytes = isRequest ? request : response
            for _ in 0..<(random.next() % 4) {
                let index = Int(random.next() % UInt64(bytes.count))
                switch random.next() % 3 {
                case 0: bytes[index] = likely[Int(random.next() % 9)]
                case 1: bytes.remove(at: index)
                default: bytes.insert(likely[Int(random.next() % 9)], at: index)
                }
            }
            var parser = HTTPHeadParser(isRequest ? .request : .response, maximum: 300)
            let whole = bytes.withUnsafeBytes { parser.feed($0) }
            var second = HTTPHeadParser(isRequest ? .request : .response, maximum: 300)
            let cut = Int(random.next() % UInt64(bytes.count))
            var halves = bytes[..<cut].withUnsafeBytes { second.feed($0) }
            if halves == .incomplete { halves = bytes.withUnsafeBytes { second.feed($0) } }
            if halves != whole { Issue.record("round \(round): \(text(bytes).debugDescription)") }
            switch whole {
            case .request(let head, let consumed):
                if consumed > bytes.count { Issue.record("round \(round)") }
                _ = ServerHandshake.decide(head, protocols: ["chat"], paths: [])
            case .response(_, let consumed):
                if consumed > bytes.count { Issue.record("round \(round)") }
            case .incomplete, .failed: break
            }
        }
    }
}
