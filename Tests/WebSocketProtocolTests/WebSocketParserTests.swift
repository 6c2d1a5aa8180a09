import Testing
import WebSocketProtocol

@Suite("WebSocket frames received")
struct WebSocketParserTests {
    static let hello = Array("Hello".utf8)
    static let key: [UInt8] = [0x37, 0xFA, 0x21, 0x3D]

    struct Input: Sendable, CustomTestStringConvertible {
        let name: String
        let role: WebSocketRole
        let bytes: [UInt8]
        let seen: [Seen]
        var testDescription: String { name }
    }

    static let valid: [Input] = [
        Input(
            name: "RFC 6455 §5.7: a single-frame unmasked text message", role: .client,
            bytes: [0x81, 0x05, 0x48, 0x65, 0x6C, 0x6C, 0x6F], seen: [.text("Hello")]),
        Input(
            name: "§5.7: a single-frame masked text message", role: .server,
            bytes: [0x81, 0x85, 0x37, 0xFA, 0x21, 0x3D, 0x7F, 0x9F, 0x4D, 0x51, 0x58], seen: [.text("Hello")]),
        Input(
            name: "§5.7: a fragmented unmasked text message", role: .client,
            bytes: [0x01, 0x03, 0x48, 0x65, 0x6C, 0x80, 0x02, 0x6C, 0x6F], seen: [.fragment, .text("Hello")]),
        Input(
            name: "§5.7: unmasked ping, masked pong", role: .client,
            bytes: [0x89, 0x05, 0x48, 0x65, 0x6C, 0x6C, 0x6F], seen: [.ping(hello)]),
        Input(
            name: "§5.7: the masked pong", role: .server,
            bytes: [0x8A, 0x85, 0x37, 0xFA, 0x21, 0x3D, 0x7F, 0x9F, 0x4D, 0x51, 0x58], seen: [.pong(hello)]),
        Input(
            name: "§5.7: 256 bytes in one unmasked frame", role: .client,
            bytes: [0x82, 0x7E, 0x01, 0x00] + [UInt8](repeating: 7, count: 256),
            seen: [.binary([UInt8](repeating: 7, count: 256))]),
        Input(
            name: "control frames between the fragments of a message", role: .server,
            bytes: frame(0x02, [1, 2, 3], mask: key) + frame(0x89, [9], mask: key) + frame(0x00, [], mask: key)
                + frame(0x8A, [], mask: key) + frame(0x80, [4], mask: [0, 0, 0, 0]) + frame(0x82, [5], mask: key),
            seen: [.fragment, .ping([9]), .fragment, .pong([]), .binary([1, 2, 3, 4]), .binary([5])]),
        Input(
            name: "empty messages, also in fragments", role: .client,
            bytes: frame(0x82, []) + frame(0x81, []) + frame(0x01, []) + frame(0x80, []) + frame(0x02, [])
                + frame(0x00, []) + frame(0x80, []),
            seen: [.binary([]), .text(""), .fragment, .text(""), .fragment, .fragment, .binary([])]),
        Input(
            name: "a character cut by fragments", role: .client,
            bytes: frame(0x01, [0xF0, 0x9F]) + frame(0x00, [0x98]) + frame(0x80, [0x80, 0x21]),
            seen: [.fragment, .fragment, .text("\u{1F600}!")]),
        Input(
            name: "a close frame without payload, and bytes behind it", role: .client,
            bytes: frame(0x88, []) + [0xFF, 0xFF, 0x00], seen: [.close(nil, "")]),
        Input(
            name: "a close frame with code and reason", role: .server,
            bytes: frame(0x88, [0x03, 0xE8] + Array("good bye é".utf8), mask: key),
            seen: [.close(1000, "good bye é")]),
        Input(
            name: "a close frame in the middle of a message", role: .client,
            bytes: frame(0x02, [1]) + frame(0x88, [0x0F, 0xA0]), seen: [.fragment, .close(4000, "")]),
        Input(
            name: "lengths at their borders", role: .server,
            bytes: [0, 1, 7, 8, 63, 64, 65, 125, 126, 127, 300].flatMap {
                frame(0x82, [UInt8](repeating: 0xA5, count: $0), mask: key)
            },
            seen: [0, 1, 7, 8, 63, 64, 65, 125, 126, 127, 300].map {
                .binary([UInt8](repeating: 0xA5, count: $0))
            }),
        Input(
            name: "a ping of 125 bytes", role: .client, bytes: frame(0x89, [UInt8](repeating: 1, count: 125)),
            seen: [.ping([UInt8](repeating: 1, count: 125))]),
    ]

    /// Bytes behind a close frame are dropped in as many events as they come in.
    private func trimmed(_ seen: [Seen]) -> [Seen] {
        guard let close = seen.firstIndex(where: { if case .close = $0 { true } else { false } }) else { return seen }
        return Array(seen[...close])
    }

    @Test("Valid bytes give the same events whole, cut in two anywhere, and byte by byte", arguments: valid)
    func validBytes(_ input: Input) {
        for shift in 0..<8 {
            let whole = parse([input.bytes], role: input.role, shift: shift)
            #expect(trimmed(whole.seen) == input.seen)
            #expect(whole.rest == 0 && whole.isSane)
        }
        for cut in 0...input.bytes.count {
            let halves = parse([Array(input.bytes[..<cut]), Array(input.bytes[cut...])], role: input.role, shift: 1)
            #expect(trimmed(halves.seen) == input.seen, "cut at \(cut)")
            #expect(halves.rest == 0 && halves.isSane)
        }
        let single = parse(input.bytes.map { [$0] }, role: input.role)
        #expect(trimmed(single.seen) == input.seen)
        #expect(single.rest == 0 && single.isSane)
    }

    @Test("All inputs of a role in one buffer give all events in order", arguments: [WebSocketRole.client, .server])
    func merged(_ role: WebSocketRole) {
        let inputs = Self.valid.filter { input in
            input.role == role && !input.seen.contains { if case .close = $0 { true } else { false } }
        }
        #expect(inputs.count >= 3)
        let result = parse([inputs.flatMap(\.bytes)], role: role, shift: 3)
        #expect(result.seen == inputs.flatMap(\.seen))
    }

    static let invalid: [Input] = [
        Input(name: "RSV1", role: .client, bytes: [0xC2, 0x00], seen: [.failed(1002)]),
        Input(name: "RSV2", role: .client, bytes: [0xA2, 0x00], seen: [.failed(1002)]),
        Input(name: "RSV3", role: .client, bytes: [0x92, 0x00], seen: [.failed(1002)]),
        Input(name: "an unmasked frame of a client", role: .server, bytes: [0x82, 0x00], seen: [.failed(1002)]),
        Input(
            name: "an unmasked control frame of a client", role: .server, bytes: [0x89, 0x00], seen: [.failed(1002)]),
        Input(
            name: "a masked frame of a server", role: .client, bytes: [0x82, 0x80, 1, 2, 3, 4], seen: [.failed(1002)]),
        Input(name: "a fragmented ping", role: .client, bytes: [0x09, 0x00], seen: [.failed(1002)]),
        Input(name: "a fragmented close", role: .client, bytes: [0x08, 0x00], seen: [.failed(1002)]),
        Input(name: "a ping of 126 bytes", role: .client, bytes: [0x89, 0x7E, 0, 126], seen: [.failed(1002)]),
        Input(
            name: "a close of a 64-bit length", role: .client, bytes: [0x88, 0x7F, 0, 0, 0, 0, 0, 1, 0, 0],
            seen: [.failed(1002)]),
        Input(name: "125 in 16 bits", role: .client, bytes: [0x82, 0x7E, 0, 125], seen: [.failed(1002)]),
        Input(name: "1 in 16 bits, whole", role: .client, bytes: [0x82, 0x7E, 0, 1, 7], seen: [.failed(1002)]),
        Input(
            name: "65535 in 64 bits", role: .client, bytes: [0x82, 0x7F, 0, 0, 0, 0, 0, 0, 0xFF, 0xFF],
            seen: [.failed(1002)]),
        Input(
            name: "the top bit of 64", role: .client, bytes: [0x82, 0x7F, 0x80, 0, 0, 0, 0, 1, 0, 0],
            seen: [.failed(1002)]),
        Input(
            name: "the largest length", role: .client,
            bytes: [0x82, 0x7F, 0x7F, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF], seen: [.failed(1009)]),
        Input(
            name: "a continuation without a start", role: .client, bytes: [0x80, 0x01, 0x00], seen: [.failed(1002)]),
        Input(
            name: "a continuation behind a finished message", role: .client,
            bytes: frame(0x02, [1]) + frame(0x80, [2]) + frame(0x80, [3]),
            seen: [.fragment, .binary([1, 2]), .failed(1002)]),
        Input(
            name: "a message inside a message", role: .client, bytes: frame(0x02, [1]) + frame(0x82, [2]),
            seen: [.fragment, .failed(1002)]),
        Input(
            name: "a text inside a text", role: .client, bytes: frame(0x01, [0x31]) + frame(0x01, [0x32]),
            seen: [.fragment, .failed(1002)]),
        Input(name: "text that is not UTF-8", role: .client, bytes: frame(0x81, [0x61, 0xFF]), seen: [.failed(1007)]),
        Input(name: "text with a cut character", role: .client, bytes: frame(0x81, [0xC3]), seen: [.failed(1007)]),
        Input(
            name: "text whose fault is certain in its first fragment", role: .client,
            bytes: frame(0x01, [0x61, 0xED, 0xA0]), seen: [.failed(1007)]),
        Input(
            name: "text whose fault is at the border of fragments", role: .client,
            bytes: frame(0x01, [0xF4]) + frame(0x00, [0x90]), seen: [.fragment, .failed(1007)]),
        Input(
            name: "text that ends within a character", role: .client,
            bytes: frame(0x01, [0xE2, 0x82]) + frame(0x80, []), seen: [.fragment, .failed(1007)]),
        Input(name: "a close payload of one byte", role: .client, bytes: frame(0x88, [3]), seen: [.failed(1002)]),
        Input(
            name: "a close reason that is not UTF-8", role: .client, bytes: frame(0x88, [0x03, 0xE8, 0xC0, 0x80]),
            seen: [.failed(1007)]),
        Input(
            name: "a close reason with a cut character", role: .client, bytes: frame(0x88, [0x03, 0xE8, 0xE2, 0x82]),
            seen: [.failed(1007)]),
    ]

    @Test("Every breach of the protocol has its close code, however the bytes come", arguments: invalid)
    func breach(_ input: Input) {
        #expect(parse([input.bytes], role: input.role).seen == input.seen)
        for cut in 0...input.bytes.count {
            let halves = parse([Array(input.bytes[..<cut]), Array(input.bytes[cut...])], role: input.role)
            #expect(halves.seen == input.seen, "cut at \(cut)")
            #expect(halves.isSane)
        }
        #expect(parse(input.bytes.map { [$0] }, role: input.role).seen == input.seen)
        // No more than the two bytes are needed to see what the first two bytes say.
        if input.bytes.count > 2, input.bytes[0] & 0x70 != 0 {
            #expect(parse([Array(input.bytes[..<2])], role: input.role).seen == input.seen)
        }
    }

    @Test("Every reserved opcode is refused")
    func reservedOpcodes() {
        for opcode: UInt8 in [3, 4, 5, 6, 7, 11, 12, 13, 14, 15] {
            #expect(parse([[0x80 | opcode, 0]], role: .client).seen == [.failed(1002)])
            #expect(parse([[opcode, 0]], role: .client).seen == [.failed(1002)])
        }
    }

    @Test("Every close code is taken or refused as the RFC says")
    func closeCodes() {
        for code in UInt16.min...UInt16.max {
            let isValid =
                [1000, 1001, 1002, 1003, 1007, 1008, 1009, 1010, 1011, 1012, 1013, 1014].contains(code)
                || (code >= 3000 && code <= 4999)
            let bytes: [UInt8] = [0x88, 2, UInt8(code >> 8), UInt8(code & 255)]
            let expected: [Seen] = [isValid ? .close(code, "") : .failed(1002)]
            if parse([bytes], role: .client).seen != expected {
                Issue.record("code \(code)")
            }
        }
    }

    @Test("The message limit holds for frames and for fragments together, before their bytes are there")
    func limit() {
        #expect(parse([frame(0x82, [UInt8](repeating: 1, count: 100))], role: .client, maximum: 100).seen.count == 1)
        #expect(parse([[0x82, 101]], role: .client, maximum: 100).seen == [.failed(1009)])
        #expect(parse([[0x82, 126, 1, 0]], role: .client, maximum: 100).seen == [.failed(1009)])
        for length in [101, 126, 65536] {
            let whole = frame(0x82, [UInt8](repeating: 1, count: length), mask: Self.key)
            #expect(parse([whole], role: .server, maximum: 100).seen == [.failed(1009)])
        }
        #expect(parse([[0x81, 101]], role: .client, maximum: 100).seen == [.failed(1009)])
        let first = frame(0x02, [UInt8](repeating: 1, count: 60))
        #expect(parse([first + [0x80, 41]], role: .client, maximum: 100).seen == [.fragment, .failed(1009)])
        let both = parse([first + frame(0x80, [UInt8](repeating: 2, count: 40))], role: .client, maximum: 100)
        #expect(both.seen == [.fragment, .binary([UInt8](repeating: 1, count: 60) + [UInt8](repeating: 2, count: 40))])
        // Control frames are not messages.
        #expect(parse([frame(0x89, [1, 2])], role: .client, maximum: 0).seen == [.ping([1, 2])])
        #expect(parse([[0x82, 1]], role: .client, maximum: -5).seen == [.failed(1009)])
        #expect(parse([frame(0x82, [])], role: .client, maximum: 0).seen == [.binary([])])
    }

    @Test("Large messages in many fragments come whole")
    func manyFragments() {
        var random = Random(seed: 5)
        var bytes: [UInt8] = []
        var message: [UInt8] = []
        for index in 0..<500 {
            let part = random.bytes(Int(random.next() % 700))
            message += part
            let first: UInt8 = (index == 0 ? 2 : 0) | (index == 499 ? 0x80 : 0)
            bytes += frame(first, part, mask: random.bytes(4))
        }
        let result = parse([bytes], role: .server)
        #expect(result.seen == [Seen](repeating: .fragment, count: 499) + [.binary(message)])
        let large = random.bytes(70000)
        #expect(parse([frame(0x82, large, mask: [1, 2, 3, 4])], role: .server).seen == [.binary(large)])
    }

    @Test("An incomplete frame says how many bytes it needs and is left untouched")
    func needed() {
        let bytes = frame(0x82, [UInt8](repeating: 9, count: 300), mask: Self.key)
        var parser = WebSocketParser(role: .server, maximumMessage: 1000)
        for count in 0..<bytes.count {
            var part = Array(bytes[..<count])
            part.withUnsafeMutableBytes { buffer in
                guard case .incomplete(let needed) = parser.next(buffer) else {
                    Issue.record("\(count) bytes are no frame")
                    return
                }
                #expect(needed > count && needed <= bytes.count)
                if count >= 4 { #expect(needed == bytes.count) }
            }
            #expect(part == Array(bytes[..<count]))
        }
    }

    @Test("After a failure nothing is looked at any more")
    func afterFailure() {
        var parser = WebSocketParser(role: .client, maximumMessage: 1000)
        for bytes: [UInt8] in [[0x81, 1, 0xFF], [0x82, 0], [], [0x88, 0]] {
            var bytes = bytes
            bytes.withUnsafeMutableBytes { buffer in
                guard case .failed(1007, _) = parser.next(buffer) else {
                    Issue.record("another event")
                    return
                }
            }
        }
    }

    @Test("Memory of a joined message can be given back before the next frame")
    func release() {
        var parser = WebSocketParser(role: .client, maximumMessage: 1000)
        var bytes = frame(0x02, [1]) + frame(0x80, [2]) + frame(0x82, [3])
        bytes.withUnsafeMutableBytes { buffer in
            _ = parser.next(buffer)
            let isInside = parser.isInsideMessage
            #expect(isInside)
            parser.releaseIdleMemory()
            let second = UnsafeMutableRawBufferPointer(rebasing: buffer[3...])
            guard case .binary(let message, 3) = parser.next(second) else {
                Issue.record("no message")
                return
            }
            #expect(Array(message) == [1, 2])
            parser.releaseIdleMemory()
            parser.releaseIdleMemory()
            guard case .binary(let last, 3) = parser.next(UnsafeMutableRawBufferPointer(rebasing: buffer[6...])) else {
                Issue.record("no message")
                return
            }
            #expect(Array(last) == [3])
        }
    }

    @Test("An idle parser is small")
    func size() {
        #expect(MemoryLayout<WebSocketParser>.size <= 64)
    }
}
