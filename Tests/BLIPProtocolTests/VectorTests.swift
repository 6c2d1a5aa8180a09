import Testing

@testable import BLIPProtocol

@Suite("The vectors")
struct VectorTests {
    struct VarintCase: Decodable {
        var value: String?
        var hex: String?
        var bad: String?
    }

    @Test("Varints are written and read as the vectors say, and bad ones refused")
    func varints() throws {
        for vector in try Vectors.load("varint.json", as: VarintCase.self) {
            let encoded = Array(hex: vector.hex ?? vector.bad ?? "")
            // From the middle of a larger buffer: what follows must not be looked at.
            let padded = [0xFF] + encoded + [0x00, 0x00]
            let (value, used) = padded.withUnsafeBytes { raw -> (UInt64?, Int) in
                guard let base = raw.baseAddress else { return (nil, 0) }
                var at = base + 1
                let value = Varint.read(&at, base + 1 + encoded.count)
                return (value, at - base - 1)
            }
            guard let text = vector.value else {
                #expect(value == nil, "\(vector.bad ?? "")")
                #expect(used == 0)
                continue
            }
            let number = try #require(UInt64(text))
            #expect(value == number)
            #expect(used == encoded.count)
            var written = [UInt8](repeating: 0, count: 16)
            let size = written.withUnsafeMutableBytes { raw in raw.baseAddress.map { Varint.write(number, to: $0) } }
            #expect(size == encoded.count)
            #expect(Array(written.prefix(encoded.count)) == encoded)
            #expect(Varint.size(number) == encoded.count)
        }
    }

    struct PropertiesCase: Decodable {
        var properties: [[String]]?
        var v1_hex: String?
        var v2_hex: String?
        var v3_hex: String?
        var bad_hex: String?
        var why: String?
        var versions: [Int]?
    }

    @Test("Properties are encoded and decoded as the vectors say, and bad ones refused")
    func properties() throws {
        for vector in try Vectors.load("properties.json", as: PropertiesCase.self) {
            for version in [ProtocolVersion.v1, .v2, .v3] {
                if let bad = vector.bad_hex {
                    guard vector.versions?.contains(Int(version.rawValue)) ?? true else { continue }
                    let answer = try #require(try refused(Array(hex: bad), version))
                    #expect(answer.kind == .error, "\(vector.why ?? "")")
                    #expect(answer.get("Error-Code") == "400")
                    continue
                }
                let expected = try #require(vector.properties)
                let hex = version == .v1 ? vector.v1_hex : version == .v2 ? vector.v2_hex : vector.v3_hex
                let sender = Engine(version)
                sender.send(Message(.request, expected.map { ($0[0], $0[1]) }))
                let (frame, _) = sender.next()
                #expect(frame.hex.contains(hex ?? "-"))
                let message = try #require(Engine(version).receive(frame).completed)
                #expect(message.allProperties == expected)
            }
        }
    }

    /// What an engine answers to a request with such encoded properties.
    private func refused(_ encoded: [UInt8], _ version: ProtocolVersion) throws -> Message? {
        // The sender does not look into the properties: it can send bad ones.
        let sender = Engine(version)
        let message = Message()
        if version == .v3 {
            encoded.withUnsafeBytes { _ = message.properties.append($0) }
            sender.send(message)
        } else {
            // Versions 1 and 2 rewrite properties: build the frame by hand.
            sender.send(Message())
        }
        var frame = sender.next().bytes
        if version == .v2 { frame = [1, 0, UInt8(encoded.count)] + encoded }
        if version == .v1 {
            frame =
                Array(hex: "9b34f206000000010000") + [0, UInt8(14 + encoded.count), 0, UInt8(encoded.count)] + encoded
        }
        let receiver = Engine(version)
        #expect(receiver.receive(frame).isNone)
        let answer = try #require(receiver.drain().first)
        return sender.receive(answer).completed
    }

    struct OutboxCase: Decodable {
        struct Entry: Decodable {
            var urgent: Bool
            var started: Bool?
            var new: Bool?
        }
        var queue: [Entry]
        var message: Entry
        var index: Int
    }

    @Test("The outbox inserts where the vectors say")
    func outbox() throws {
        for (number, vector) in try Vectors.load("outbox.json", as: OutboxCase.self).enumerated() {
            var outbox = Outbox()
            for entry in vector.queue {
                let queued = Message(flags: entry.urgent ? .urgent : [])
                queued.state.pointee.isStarted = entry.started ?? false
                outbox.append(queued)
            }
            let message = Message(flags: vector.message.urgent ? .urgent : [])
            message.state.pointee.isStarted = !(vector.message.new ?? false)
            outbox.insert(message)
            #expect(outbox.all().firstIndex { $0 === message } == vector.index, "case \(number)")
            #expect(outbox.count == vector.queue.count + 1)
        }
    }

    struct Conversation: Decodable {
        struct Expected: Decodable {
            var kind: String
            var number: UInt64
            var properties: [[String]]
            var body: Vectors.Body
            var compressed: Bool
            var urgent: Bool
            var noreply: Bool

            var messageKind: MessageKind { kind == "MSG" ? .request : kind == "RPY" ? .response : .error }

            var flags: MessageFlags {
                var flags = MessageFlags()
                if compressed { flags.insert(.compressed) }
                if urgent { flags.insert(.urgent) }
                if noreply { flags.insert(.noReply) }
                return flags
            }
        }
        var name: String
        var version: UInt8
        var frames: [String]
        var messages: [Expected]
        var exact_when_encoding: Bool
        var chunk_sizes: [[Int]]
    }

    private func conversations() throws -> [Conversation] {
        try ["v1-frames.json", "v2-frames.json", "v3-frames.json"].flatMap {
            try Vectors.load($0, as: Conversation.self)
        }
    }

    @Test("Every conversation of the vectors decodes to its messages")
    func decoding() throws {
        for vector in try conversations() {
            let version = try #require(ProtocolVersion(rawValue: vector.version))
            let engine = Engine(version)
            // Responses need requests that were sent.
            if vector.messages.contains(where: { $0.kind != "MSG" }) {
                for _ in vector.messages { engine.send(Message()) }
                _ = engine.drain()
            }
            var received: [Message] = []
            for frame in vector.frames {
                let event = engine.receive(Array(hex: frame))
                #expect(event.error == nil, "\(vector.name): \(event)")
                if let message = event.completed { received.append(message) }
            }
            #expect(received.count == vector.messages.count, "\(vector.name), version \(vector.version)")
            // A vector may finish its messages in another order than it lists them.
            for expected in vector.messages {
                let message = try #require(received.first { $0.number == expected.number }, "\(vector.name)")
                #expect(message.kind == expected.messageKind)
                #expect(message.allProperties == expected.properties, "\(vector.name)")
                #expect(message.bodyArray == expected.body.bytes, "\(vector.name)")
                #expect(message.bodyBytesReceived == UInt64(expected.body.bytes.count))
                #expect(message.flags == expected.flags, "\(vector.name)")
                #expect((message.request != nil) == (expected.kind != "MSG"))
            }
            #expect(engine.unfinishedIncoming == 0)
            #expect(engine.state.pointee.heldBytes == 0)
        }
    }

    @Test("Encoding the vectors' messages gives the very same frames")
    func encoding() throws {
        for vector in try conversations() {
            let version = try #require(ProtocolVersion(rawValue: vector.version))
            // A request's number is the engine's business: one vector sends numbers out of order, as responses.
            let engine = Engine(version)
            var frames: [[UInt8]] = []
            for (index, expected) in vector.messages.enumerated() {
                let message = Message(
                    expected.messageKind, expected.properties.map { ($0[0], $0[1]) }, body: expected.body.bytes,
                    flags: expected.flags, number: expected.messageKind == .request ? 0 : expected.number)
                engine.send(message)
                var chunks = vector.chunk_sizes[min(index, vector.chunk_sizes.count - 1)]
                while !message.isFinished {
                    let chunk = chunks.count > 1 ? chunks.removeFirst() : chunks[0]
                    let overhead =
                        version == .v1 ? 12 : Varint.size(expected.number) + 1 + (version == .v3 ? 4 : 0)
                    let (bytes, frame) = engine.next(size: chunk + overhead)
                    #expect(frame.error == nil && frame.failure == nil)
                    guard frame.count > 0 else {
                        Issue.record("\(vector.name): no frame")
                        return
                    }
                    frames.append(bytes)
                    // The vectors have no acknowledgements.
                    if !message.isFinished, let head = FrameHead(bytes), version != .v1 {
                        let count = message.state.pointee.wireSent
                        var ack = [UInt8](repeating: 0, count: 32)
                        let size = ack.withUnsafeMutableBytes { raw -> Int in
                            guard let base = raw.baseAddress else { return 0 }
                            var size = Varint.write(head.number, to: base)
                            raw[size] = head.type == 0 ? 0x34 : 0x35
                            size += 1
                            return size + Varint.write(count, to: base + size)
                        }
                        engine.receive(Array(ack.prefix(size)))
                    }
                }
            }
            if vector.exact_when_encoding {
                #expect(frames.map(\.hex) == vector.frames, "\(vector.name), version \(vector.version)")
            }
            // Ours to ourselves, exact or not.
            let reader = Engine(version)
            for _ in vector.messages { reader.send(Message()) }
            _ = reader.drain()
            var bodies: [UInt64: [UInt8]] = [:]
            for frame in frames {
                let event = reader.receive(frame)
                #expect(event.error == nil, "\(vector.name): \(event)")
                if let message = event.completed { bodies[message.number] = message.bodyArray }
            }
            #expect(bodies == Dictionary(uniqueKeysWithValues: vector.messages.map { ($0.number, $0.body.bytes) }))
        }
    }

    struct BadCase: Decodable {
        var name: String
        var version: UInt8
        var frames: [String]
        var outcome: String
    }

    @Test("Bad frames end as the vectors say")
    func badFrames() throws {
        for vector in try Vectors.load("bad-frames.json", as: BadCase.self) {
            let version = try #require(ProtocolVersion(rawValue: vector.version))
            let engine = Engine(version)
            var events: [Event] = []
            for frame in vector.frames {
                let event = engine.receive(Array(hex: frame))
                events.append(event)
                if event.error != nil { break }
            }
            let errors = events.compactMap(\.error)
            switch vector.outcome {
            case "fatal":
                #expect(errors.count == 1, "\(vector.name): \(events)")
                let code = errors.first?.webSocketCode ?? 0
                #expect(code == 1002 || code == 1007 || code == 1009)
            case "ignored", "frame error: ignored":
                #expect(!events.contains { !$0.isNone }, "\(vector.name)")
                #expect(!engine.hasOutput)
            case "delivered":
                #expect(events.last?.completed != nil, "\(vector.name)")
            case let outcome where outcome.hasPrefix("frame error") || outcome.hasPrefix("refused"):
                #expect(errors.isEmpty, "\(vector.name)")
                #expect(events.first?.isNone == true, "\(vector.name)")
                #expect(engine.drain().count == 1, "\(vector.name): one error response")
                if vector.frames.count > 1 { #expect(events.last?.completed?.bodyArray == Array("ok".utf8)) }
            default:
                // "ignored or fatal, never a crash"
                break
            }
        }
    }

    @Test("Every beginning of every frame of the vectors is taken without a crash, in every version")
    func cutFrames() throws {
        for vector in try conversations() {
            for version in [ProtocolVersion.v1, .v2, .v3] {
                guard let frame = vector.frames.first.map({ Array(hex: $0) }) else { continue }
                for count in 0..<min(frame.count, 64) { Engine(version).receive(Array(frame.prefix(count))) }
            }
        }
    }
}
