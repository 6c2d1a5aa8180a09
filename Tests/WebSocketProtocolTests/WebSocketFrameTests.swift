import Testing
import WebSocketProtocol

@Suite("WebSocket frames written")
struct WebSocketFrameTests {
    private func write(_ size: Int = 200, _ body: (UnsafeMutableRawPointer) -> Int) -> [UInt8] {
        var bytes = [UInt8](repeating: 0xEE, count: size)
        let count = bytes.withUnsafeMutableBytes { buffer in buffer.baseAddress.map(body) ?? 0 }
        #expect(bytes[count...].allSatisfy { $0 == 0xEE })
        return Array(bytes[..<count])
    }

    private func key(_ bytes: [UInt8]) -> UInt32 { bytes.withUnsafeBytes { $0.loadUnaligned(as: UInt32.self) } }

    @Test("Headers have the fewest bytes and the bytes of the RFC's examples")
    func headers() {
        let mask: [UInt8] = [0x37, 0xFA, 0x21, 0x3D]
        for (payload, bytes) in [
            (0, [0x82, 0]), (125, [0x82, 125]), (126, [0x82, 126, 0, 126]), (256, [0x82, 0x7E, 0x01, 0x00]),
            (65535, [0x82, 126, 255, 255]), (65536, [0x82, 127, 0, 0, 0, 0, 0, 1, 0, 0]),
            (Int.max, [0x82, 127, 127, 255, 255, 255, 255, 255, 255, 255]),
        ] as [(Int, [UInt8])] {
            let plain = write { to in
                WebSocketFrame.writeHeader(opcode: .binary, final: true, payload: payload, maskKey: nil, to: to)
            }
            #expect(plain == bytes)
            #expect(WebSocketFrame.headerSize(payload: payload, masked: false) == bytes.count)
            let masked = write { to in
                WebSocketFrame.writeHeader(opcode: .binary, final: true, payload: payload, maskKey: key(mask), to: to)
            }
            #expect(masked == [bytes[0], bytes[1] | 0x80] + bytes[2...] + mask)
            #expect(WebSocketFrame.headerSize(payload: payload, masked: true) == bytes.count + 4)
        }
        let first = write { WebSocketFrame.writeHeader(opcode: .text, final: false, payload: 3, maskKey: nil, to: $0) }
        #expect(first == [0x01, 0x03])
        let last = write {
            WebSocketFrame.writeHeader(opcode: .continuation, final: true, payload: 2, maskKey: nil, to: $0)
        }
        #expect(last == [0x80, 0x02])
        let negative = write {
            WebSocketFrame.writeHeader(opcode: .binary, final: true, payload: -1, maskKey: nil, to: $0)
        }
        #expect(negative == [0x82, 0])
    }

    @Test("Masking equals the plain loop for all lengths, alignments and offsets")
    func masking() {
        let mask: [UInt8] = [0x37, 0xFA, 0x21, 0x3D]
        var random = Random(seed: 3)
        let source = random.bytes(330)
        for length in 0...300 {
            for shift in 0..<9 {
                for offset in [0, 1, 2, 3, 4, 7, 1001] {
                    var bytes = source
                    bytes.withUnsafeMutableBytes { buffer in
                        let part = UnsafeMutableRawBufferPointer(rebasing: buffer[shift..<(shift + length)])
                        WebSocketFrame.mask(part, key: key(mask), offset: offset)
                    }
                    var expected = source
                    for index in 0..<length { expected[shift + index] ^= mask[(offset + index) % 4] }
                    if bytes != expected { Issue.record("length \(length), shift \(shift), offset \(offset)") }
                }
            }
        }
    }

    @Test("A payload masked in pieces is the payload masked at once")
    func maskingInPieces() {
        var random = Random(seed: 4)
        let source = random.bytes(1000)
        let mask = key(random.bytes(4))
        var whole = source
        whole.withUnsafeMutableBytes { WebSocketFrame.mask($0, key: mask) }
        for step in [1, 3, 5, 64, 65, 333] {
            var pieces = source
            pieces.withUnsafeMutableBytes { buffer in
                var start = 0
                while start < buffer.count {
                    let end = min(start + step, buffer.count)
                    let part = UnsafeMutableRawBufferPointer(rebasing: buffer[start..<end])
                    WebSocketFrame.mask(part, key: mask, offset: start)
                    start = end
                }
            }
            #expect(pieces == whole)
        }
    }

    @Test("Control frames are the RFC's bytes")
    func control() {
        let hello = Array("Hello".utf8)
        let ping = hello.withUnsafeBytes { payload in
            write { WebSocketFrame.writeControl(.ping, payload: payload, maskKey: nil, to: $0) }
        }
        #expect(ping == [0x89, 0x05, 0x48, 0x65, 0x6C, 0x6C, 0x6F])
        let pong = hello.withUnsafeBytes { payload in
            write {
                WebSocketFrame.writeControl(.pong, payload: payload, maskKey: key([0x37, 0xFA, 0x21, 0x3D]), to: $0)
            }
        }
        #expect(pong == [0x8A, 0x85, 0x37, 0xFA, 0x21, 0x3D, 0x7F, 0x9F, 0x4D, 0x51, 0x58])
        let long = [UInt8](repeating: 1, count: 300).withUnsafeBytes { payload in
            write { WebSocketFrame.writeControl(.ping, payload: payload, maskKey: 1, to: $0) }
        }
        #expect(long.count == WebSocketFrame.maximumControlFrame)
        #expect(long[1] == 0x80 | 125)
    }

    @Test("Close frames hold code and reason, cut between characters")
    func close() {
        func written(_ code: UInt16?, _ reason: String) -> [UInt8] {
            Array(reason.utf8).withUnsafeBytes { reason in
                write { WebSocketFrame.writeClose(code: code, reason: reason, maskKey: nil, to: $0) }
            }
        }
        #expect(written(1000, "bye") == [0x88, 5, 0x03, 0xE8, 0x62, 0x79, 0x65])
        #expect(written(1000, "") == [0x88, 2, 0x03, 0xE8])
        #expect(written(nil, "ignored") == [0x88, 0])
        for code: UInt16 in [0, 999, 1004, 1005, 1006, 1015, 2999, 5000, 65535] {
            #expect(written(code, "never on the wire") == [0x88, 0])
        }
        let full = String(repeating: "x", count: 123)
        #expect(written(4000, full) == [0x88, 125, 0x0F, 0xA0] + Array(full.utf8))
        #expect(written(4000, full + "y") == [0x88, 125, 0x0F, 0xA0] + Array(full.utf8))
        let cut = String(repeating: "x", count: 121) + "\u{20AC}"
        #expect(written(1000, cut) == [0x88, 123, 0x03, 0xE8] + Array(cut.utf8.prefix(121)))
        #expect(parse([written(1000, cut)], role: .client).seen == [.close(1000, String(cut.dropLast()))])
    }

    @Test("What is written is read back by the other side")
    func roundTrip() {
        var random = Random(seed: 6)
        for length in [0, 1, 5, 125, 126, 1000, 65535, 65536, 70001] {
            let payload = random.bytes(length)
            for masked in [false, true] {
                let mask = masked ? UInt32(truncatingIfNeeded: random.next()) : nil
                var bytes = write(length + 14) { to in
                    let size = WebSocketFrame.writeHeader(
                        opcode: .binary, final: true, payload: length, maskKey: mask, to: to)
                    let part = UnsafeMutableRawBufferPointer(start: to + size, count: length)
                    part.copyBytes(from: payload)
                    if let mask { WebSocketFrame.mask(part, key: mask) }
                    return size + length
                }
                bytes += frame(0x89, [], mask: masked ? [0, 0, 0, 0] : nil)
                #expect(parse([bytes], role: masked ? .server : .client).seen == [.binary(payload), .ping([])])
            }
        }
    }
}
