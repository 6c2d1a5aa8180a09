import Testing

@testable import BLIPProtocol

@Suite("A frame that becomes much is inflated in parts")
struct SuspensionTests {
    private static func limits(_ part: Int) -> Limits {
        var limits = Limits()
        limits.inflatedAtOnce = part
        limits.outgoingFrame = 65000
        return limits
    }

    /// Frames of one compressed message.
    private static func frames(
        _ version: ProtocolVersion, _ size: Int, then others: Int = 0, limits: Limits = limits(1000)
    ) -> [[UInt8]] {
        let engine = Engine(version, limits: limits)
        engine.send(Message(.request, [("Profile", "large")], body: text(size), flags: .compressed))
        for _ in 0..<others { engine.send(Message(.request, [("Profile", "next")], flags: .compressed)) }
        return engine.drain()
    }

    @Test("No call inflates more than its part, and the message is right", arguments: [ProtocolVersion.v1, .v2, .v3])
    func parts(version: ProtocolVersion) throws {
        let sent = Self.frames(version, 30_000, then: 1)
        #expect(sent.count == 2)
        let engine = Engine(version, limits: Self.limits(1000))
        var event = engine.begin(sent[0])
        var turns = 1
        while case .suspended = event {
            #expect(engine.isSuspended && !engine.isIdle)
            #expect(engine.bytesInflated <= UInt64(turns * 1000))
            #expect(engine.heldBytes >= turns * 1000, "what is here does not count")
            event = engine.continueFrame()
            turns += 1
        }
        #expect(turns > 25)
        #expect(event.completed?.bodyArray == text(30_000))
        #expect(!engine.isSuspended && engine.heldBytes == 0)
        #expect(engine.receive(sent[1]).completed?.get("Profile") == "next")
        #expect(engine.continueFrame().isNone)
    }

    @Test("The message limit holds across parts", arguments: [ProtocolVersion.v1, .v2, .v3])
    func limit(version: ProtocolVersion) throws {
        let sent = Self.frames(version, 30_000, then: 1)
        var limits = Self.limits(1000)
        limits.message = 10_500
        let engine = Engine(version, limits: limits)
        #expect(engine.receive(sent[0]).isNone)
        #expect(engine.heldBytes == 0)
        let peer = Engine(version)
        peer.send(Message(.request, [("Profile", "large")]))
        _ = peer.drain()
        #expect(peer.receive(try #require(engine.drain().first)).completed?.get("Error-Code") == "413")
        #expect(engine.receive(sent[1]).completed?.get("Profile") == "next")
    }

    @Test("A bomb ends in parts too")
    func bomb() {
        let deflater = ZlibPeer(level: 9)
        var limits = Self.limits(1 << 20)
        limits.message = 1 << 20
        let engine = Engine(.v3, limits: limits)
        let frame = [1, 0x08] + deflater.frame([UInt8](repeating: 0, count: 40 << 20)).dropLast(4) + [0, 0, 0, 0]
        var event = engine.begin(frame)
        var turns = 1
        while case .suspended = event {
            #expect(engine.heldBytes <= 2 << 20)
            event = engine.continueFrame()
            turns += 1
        }
        #expect(event.error?.webSocketCode == 1009)
        #expect(turns >= 16 && turns <= 20)
    }

    @Test("A checksum is wrong at the end, not before")
    func checksum() {
        var frame = Self.frames(.v3, 30_000)[0]
        frame[frame.count - 1] ^= 1
        let engine = Engine(.v3, limits: Self.limits(1000))
        guard case .suspended = engine.begin(frame) else {
            Issue.record("not suspended")
            return
        }
        var event = Event.suspended
        while case .suspended = event { event = engine.continueFrame() }
        #expect(event.error?.kind == .checksum)
    }

    @Test("A response that is abandoned between two parts is dropped, and what follows is right")
    func abandoned() throws {
        for isFirst in [true, false] {
            let a = Engine(.v3, limits: Self.limits(1000))
            var limits = Limits()
            limits.outgoingFrame = 16000
            let b = Engine(.v3, limits: limits)
            let request = Message(.request, [("Profile", "p")])
            a.send(request)
            _ = b.receive(a.next().bytes)
            b.send(Message(.response, [], body: text(400_000), flags: .compressed, number: 1))
            var frames = b.drain()
            b.send(Message(.request, [("Profile", "next")], flags: .compressed))
            frames += b.drain()
            if !isFirst {
                guard case .began = a.receive(frames.removeFirst()) else {
                    Issue.record("not begun")
                    return
                }
            }
            guard case .suspended = a.begin(frames.removeFirst()) else {
                Issue.record("not suspended")
                return
            }
            a.abandon(request)
            #expect(a.pendingRequests == 0)
            var event = a.continueFrame()
            while case .suspended = event { event = a.continueFrame() }
            #expect(event.isNone)
            #expect(a.heldBytes == 0)
            while !frames.isEmpty {
                let next = a.receive(frames.removeFirst())
                if frames.isEmpty { #expect(next.completed?.get("Profile") == "next") } else { #expect(next.isNone) }
            }
            #expect(a.unfinishedIncoming == 0 && a.heldBytes == 0 && a.state.pointee.abandonedPending == 0)
        }
    }

    @Test("A streamed body can be taken between two parts")
    func streamed() throws {
        var limits = Self.limits(1000)
        limits.outgoingFrame = 16_000
        let sent = Self.frames(.v3, 400_000, limits: limits)
        #expect(sent.count > 2)
        let engine = Engine(.v3, limits: Self.limits(1000))
        guard case .began(let message) = engine.receive(sent[0]) else {
            Issue.record("not begun")
            return
        }
        message.isStreamed = true
        var read: [UInt8] = []
        var isComplete = false
        for frame in sent.dropFirst() {
            var event = engine.begin(frame)
            while true {
                read += message.bodyArray
                engine.consume(message, message.incomingBody.count)
                #expect(engine.heldBytes < 2000)
                guard case .suspended = event else { break }
                event = engine.continueFrame()
            }
            if event.completed === message { isComplete = true }
        }
        #expect(isComplete && read == text(400_000))
    }

    @Test("Ending between two parts gives back the request, and nothing is left")
    func ending() {
        let a = Engine(.v3, limits: Self.limits(1000))
        let b = Engine(.v3, limits: Self.limits(1000))
        let request = Message(.request, [("Profile", "p")])
        a.send(request)
        _ = b.receive(a.next().bytes)
        b.send(Message(.response, [], body: text(30_000), flags: .compressed, number: 1))
        guard case .suspended = a.begin(b.next().bytes) else {
            Issue.record("not suspended")
            return
        }
        let left = a.takeAll()
        #expect(left.requests.count == 1 && left.requests.first === request && left.incoming.isEmpty)
        #expect(a.heldBytes == 0 && a.isIdle && a.continueFrame().isNone)
    }
}
