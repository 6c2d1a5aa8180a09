import Testing

@testable import BLIPProtocol

@Suite("Flow control")
struct FlowControlTests {
    private func acknowledgement(_ number: UInt64, _ type: UInt8, _ count: UInt64) -> [UInt8] {
        var bytes = [UInt8](repeating: 0, count: 32)
        let size = bytes.withUnsafeMutableBytes { raw -> Int in
            guard let base = raw.baseAddress else { return 0 }
            var size = Varint.write(number, to: base)
            raw[size] = type | 0x30
            size += 1
            return size + Varint.write(count, to: base + size)
        }
        return Array(bytes.prefix(size))
    }

    @Test("A message pauses at 128,000 unacknowledged bytes and resumes below", arguments: [ProtocolVersion.v2, .v3])
    func pausing(version: ProtocolVersion) throws {
        let engine = Engine(version)
        engine.send(Message(body: pattern(400_000), flags: .noReply))
        var payload = 0
        for frame in engine.drain() { payload += try #require(FrameHead(frame)).payload }
        #expect(payload >= 128_000 && payload < 128_000 + 16384)
        #expect(engine.queuedMessages == 1 && !engine.hasOutput && !engine.isIdle)
        // Other messages go on.
        engine.send(Message(body: [1], flags: .noReply))
        #expect(engine.drain().count == 1)
        // Exactly at the threshold it stays paused; odd acknowledgements change nothing.
        let exact = UInt64(payload - 128_000)
        if exact > 0 {
            guard case .acknowledged = engine.receive(acknowledgement(1, 4, exact)) else {
                Issue.record("not acknowledged")
                return
            }
            #expect(!engine.hasOutput)
        }
        #expect(engine.receive(acknowledgement(1, 4, exact)).isNone)
        #expect(engine.receive(acknowledgement(1, 4, UInt64(payload) + 1)).isNone)
        #expect(engine.receive(acknowledgement(1, 5, exact + 1)).isNone)
        #expect(engine.receive(acknowledgement(9, 4, 1)).isNone)
        #expect(engine.receive(acknowledgement(UInt64.max, 4, 1)).isNone)
        #expect(engine.receive(acknowledgement(0, 4, 1)).isNone)
        #expect(!engine.hasOutput)
        guard case .acknowledged = engine.receive(acknowledgement(1, 4, exact + 1)) else {
            Issue.record("not acknowledged")
            return
        }
        #expect(engine.hasOutput)
        #expect(engine.drain().count == 1)
    }

    @Test("One or two messages under way set the pace, none and many do not", arguments: 1...3)
    func pace(count: Int) {
        let a = Engine(.v3)
        let b = Engine(.v3)
        for _ in 0..<count { a.send(Message(body: pattern(100_000), flags: .noReply)) }
        #expect(!a.isPacedByAcknowledgements)
        for _ in 0..<count { b.receive(a.next().bytes) }
        #expect(a.isPacedByAcknowledgements == (count <= 2))
        #expect(b.isPacedByAcknowledgements == (count <= 2))
        while a.hasOutput { b.receive(a.next().bytes) }
        #expect(!a.isPacedByAcknowledgements && !b.isPacedByAcknowledgements)
    }

    @Test(
        "Acknowledgements come as totals cross 50,000, count what is behind the headers, and rise",
        arguments: [ProtocolVersion.v2, .v3], [MessageFlags(), .compressed])
    func counting(version: ProtocolVersion, flags: MessageFlags) throws {
        let a = Engine(version)
        let b = Engine(version)
        a.send(Message(.request, [("Profile", "p")], body: noise(400_000, 3), flags: flags.union(.noReply)))
        var payload: UInt64 = 0
        var last: UInt64 = 0
        var counts: [UInt64] = []
        var isComplete = false
        while a.hasOutput {
            let frame = a.next().bytes
            let head = try #require(FrameHead(frame))
            let before = payload
            payload += UInt64(head.payload)
            isComplete = b.receive(frame).completed != nil
            let due = head.moreComing && before > 0 && before / 50_000 < payload / 50_000
            #expect(b.hasOutput == due)
            for answer in b.drain() {
                let count = try #require(FrameHead(answer))
                #expect(count.flags == 0x34 && count.number == 1)
                #expect(answer == acknowledgement(1, 4, payload))
                #expect(payload > last)
                last = payload
                counts.append(payload)
                a.receive(answer)
            }
        }
        #expect(isComplete)
        #expect(counts.count >= 7)
    }

    @Test("Acknowledgements of a response have their own type")
    func responseType() throws {
        let a = Engine(.v3)
        let b = Engine(.v3)
        a.send(Message())
        let request = try #require(b.receive(a.next().bytes).completed)
        b.send(Message(.response, body: pattern(90_000), number: request.number))
        for frame in b.drain() { a.receive(frame) }
        let answer = try #require(a.drain().first)
        #expect(answer.prefix(2) == [1, 0x35])
    }

    @Test("A streamed message is acknowledged as it is consumed, and its sender stops for a reader that does not")
    func consumerDriven() throws {
        let a = Engine(.v3)
        let b = Engine(.v3)
        a.send(Message(body: pattern(1_000_000), flags: .noReply))
        var stream: Message?
        func pump() {
            while a.hasOutput {
                switch b.receive(a.next().bytes) {
                case .began(let message):
                    message.isStreamed = true
                    stream = message
                case .failed(let error): Issue.record("\(error.text)")
                default: break
                }
            }
        }
        pump()
        let message = try #require(stream)
        #expect(!b.hasOutput, "nothing was consumed")
        #expect(message.incomingBody.count >= 120_000 && message.incomingBody.count < 150_000)
        let held = message.incomingBody.count
        // Bit by bit: no acknowledgement before 50,000 bytes of content are gone.
        b.consume(message, 49_000)
        #expect(!b.hasOutput)
        b.consume(message, 20_000)
        let first = b.drain()
        #expect(first.count == 1)
        #expect(message.incomingBody.first == UInt8(truncatingIfNeeded: 69_000))
        #expect(b.state.pointee.heldBytes == held - 69_000 + message.state.pointee.propertiesEnd)
        for frame in first { a.receive(frame) }
        // A reader that keeps up gets everything.
        var read = 69_000
        var turns = 0
        while !message.isComplete, turns < 1000 {
            turns += 1
            read += message.incomingBody.count
            b.consume(message, message.incomingBody.count)
            for frame in b.drain() { a.receive(frame) }
            pump()
        }
        read += message.incomingBody.count
        #expect(read == 1_000_000 && message.bodyBytesReceived == 1_000_000)
        // After the end nothing is acknowledged any more.
        b.consume(message, message.incomingBody.count)
        #expect(!b.hasOutput)
        #expect(b.state.pointee.heldBytes == 0)
    }

    @Test("Consuming too much, nothing or less than nothing does no harm")
    func oddConsumption() throws {
        let a = Engine(.v3)
        let b = Engine(.v3)
        a.send(Message(body: pattern(40_000), flags: .noReply))
        guard case .began(let message) = b.receive(a.next().bytes) else { return }
        message.isStreamed = true
        b.consume(message, -5)
        b.consume(message, 0)
        b.consume(message, Int.max)
        #expect(message.incomingBody.isEmpty)
        b.consume(message, 1)
        b.consume(Message(), 10)
        while a.hasOutput { b.receive(a.next().bytes) }
        #expect(message.isComplete && message.bodyBytesReceived == 40_000)
    }

    @Test("A first frame so large that its sender must be waiting is acknowledged")
    func hugeFirstFrame() throws {
        var limits = Limits()
        limits.outgoingFrame = 200_000
        let a = Engine(.v3, limits: limits)
        let b = Engine(.v3)
        a.send(Message(body: pattern(600_000), flags: .noReply))
        var turns = 0
        var done = false
        while !done, turns < 100 {
            turns += 1
            if a.hasOutput { done = b.receive(a.next().bytes).completed != nil }
            for frame in b.drain() { a.receive(frame) }
        }
        #expect(done)
    }

    @Test("What was taken is acknowledged only when its reader says so")
    func takenAndAcknowledged() throws {
        let a = Engine(.v3)
        let b = Engine(.v3)
        a.send(Message(body: pattern(1_000_000)))
        var stream: Message?
        func pump() {
            while a.hasOutput {
                if case .began(let message) = b.receive(a.next().bytes) {
                    message.isStreamed = true
                    stream = message
                }
            }
        }
        pump()
        let message = try #require(stream)
        let held = message.incomingBody.count
        #expect(b.take(message, Int.max) == held)
        #expect(message.incomingBody.isEmpty && !b.hasOutput)
        b.acknowledge(message, 70_000)
        let count = try #require(b.drain().first)
        a.receive(count)
        #expect(a.hasOutput, "below the threshold again")
        b.acknowledge(message, Int.max)
        for answer in b.drain() { a.receive(answer) }
        pump()
        // More than was taken cannot be acknowledged.
        b.acknowledge(message, Int.max)
        #expect(!b.hasOutput)
        #expect(message.incomingBody.count > 0)
    }

    @Test("The part of a response that is here can be asked for")
    func partialResponse() throws {
        let a = Engine(.v3)
        let b = Engine(.v3)
        let request = Message()
        a.send(request)
        #expect(a.response(to: request) == nil)
        b.receive(a.next().bytes)
        b.send(Message(.response, body: pattern(40_000), number: 1))
        guard case .began(let response) = a.receive(b.next().bytes) else {
            Issue.record("not begun")
            return
        }
        #expect(a.response(to: request) === response && a.pendingRequests == 1)
        for frame in b.drain() { a.receive(frame) }
        #expect(a.response(to: request) == nil && a.pendingRequests == 0)
    }

    @Test("An idle engine is small")
    func idleSize() {
        #expect(MemoryLayout<EngineState>.size <= 512)
        let a = Engine(.v3)
        #expect(a.state.pointee.deflater == nil && a.state.pointee.inflater == nil)
        #expect(a.isIdle && !a.hasOutput)
    }

    @Test("Exactly 128,000 unacknowledged bytes pause", arguments: [ProtocolVersion.v2, .v3])
    func exactThreshold(version: ProtocolVersion) throws {
        var limits = Limits()
        // Two bytes of header, 12,800 that count.
        limits.outgoingFrame = 12_802
        let engine = Engine(version, limits: limits)
        engine.send(Message(body: pattern(400_000), flags: .noReply))
        let frames = engine.drain()
        #expect(frames.count == 10)
        #expect(try frames.allSatisfy { try #require(FrameHead($0)).payload == 12_800 })
    }
}
