import Testing

@testable import BLIPProtocol

@Suite("Limits, failures and endings")
struct FailureTests {
    @Test("Too many unfinished messages end the connection")
    func unfinishedMessages() {
        var limits = Limits()
        limits.unfinishedMessages = 3
        let a = Engine(.v3)
        let b = Engine(.v3, limits: limits)
        for _ in 0..<4 { a.send(Message(body: pattern(40_000))) }
        var errors: [ProtocolError] = []
        for _ in 0..<4 { if let error = b.receive(a.next().bytes).error { errors.append(error) } }
        #expect(errors.map(\.kind) == [.limit])
        #expect(errors.first?.webSocketCode == 1009)
    }

    @Test("The message that passes the limit of unfinished bytes fails, the others live")
    func unfinishedBytes() throws {
        var limits = Limits()
        limits.unfinishedBytes = 50_000
        let a = Engine(.v3)
        let b = Engine(.v3, limits: limits)
        for index in 0..<3 { a.send(Message(.request, [("n", "\(index)")], body: pattern(40_000))) }
        var completed: [Message] = []
        var failed = 0
        while a.hasOutput {
            let event = b.receive(a.next().bytes)
            #expect(event.error == nil)
            if let message = event.completed { completed.append(message) }
            if case .messageFailed(_, .memory) = event { failed += 1 }
            #expect(b.state.pointee.heldBytes <= 50_000)
        }
        #expect(completed.count >= 1)
        #expect(completed.allSatisfy { $0.bodyArray == pattern(40_000) })
        #expect(completed.count + failed + b.drain().count == 3)
        #expect(b.state.pointee.heldBytes == 0 && b.unfinishedIncoming == 0)
    }

    @Test("What one frame of gzip becomes is held, streamed or not", arguments: [true, false])
    func gzipIsHeld(isStreamed: Bool) throws {
        var limits = Limits()
        limits.unfinishedBytes = 1 << 20
        for version in [ProtocolVersion.v1, .v2] {
            let b = Engine(version, limits: limits)
            let gzip = ZlibPeer(level: 9, windowBits: 31).frame([UInt8](repeating: 0, count: 3 << 19), end: 4)
            func frame(_ payload: [UInt8], isLast: Bool) -> [UInt8] {
                guard version == .v1 else { return [1, isLast ? 0x28 : 0x68] + payload }
                let size = payload.count + 12
                let flags: UInt8 = isLast ? 0x50 : 0xD0
                return [0x9B, 0x34, 0xF2, 0x06, 0, 0, 0, 1, 0, flags, UInt8(size >> 8), UInt8(size & 0xFF)] + payload
            }
            let head: [UInt8] = version == .v1 ? [0, 0] : [0]
            guard case .began(let message) = b.receive(frame(head + gzip.prefix(20), isLast: false)) else {
                Issue.record("not begun")
                return
            }
            message.isStreamed = isStreamed
            guard case .messageFailed(_, .memory) = b.receive(frame(Array(gzip[20...]), isLast: false)) else {
                Issue.record("\(version): \(message.memorySize) bytes are held")
                return
            }
            #expect(b.heldBytes == 0)
        }
    }

    @Test("A frame above the limit ends the connection")
    func frameLimit() {
        var limits = Limits()
        limits.incomingFrame = 1000
        let b = Engine(.v3, limits: limits)
        #expect(b.receive([UInt8](repeating: 0, count: 1001)).error?.webSocketCode == 1009)
    }

    @Test("The sender refuses properties above the limit, and the next message goes")
    func refusedProperties() throws {
        for version in [ProtocolVersion.v1, .v2, .v3] {
            let a = Engine(version)
            let long = Message(.request, [("k", String(repeating: "v", count: 103_000))])
            #expect(!a.propertiesFit(long))
            a.send(long)
            a.send(Message(.request, [("Profile", "p")]))
            let refused = a.next()
            #expect(refused.frame.count == 0 && refused.frame.failure == .propertiesTooLarge)
            #expect(refused.frame.message === long && !long.isStarted)
            let good = a.next()
            #expect(good.frame.isLast && good.frame.message?.number == 1)
            #expect(Engine(version).receive(good.bytes).completed?.get("Profile") == "p")
            #expect(a.queuedBytes == 0)
        }
        // Version 1 has 16 bits for the length.
        let a = Engine(.v1)
        let long = Message(.request, [("k", String(repeating: "v", count: 66_000))])
        #expect(!a.propertiesFit(long))
        a.send(long)
        #expect(a.next().frame.failure == .propertiesTooLarge)
    }

    @Test("Received properties above the limit fail the message, whole or in parts")
    func receivedProperties() throws {
        var limits = Limits()
        limits.properties = 1000
        for size in [900, 2000, 50_000] {
            let a = Engine(.v3)
            let b = Engine(.v3, limits: limits)
            a.send(Message(.request, [("k", String(repeating: "v", count: size))]))
            var delivered = false
            while a.hasOutput {
                let event = b.receive(a.next().bytes)
                #expect(event.error == nil)
                delivered = event.completed != nil
                if a.hasOutput { #expect(!b.hasOutput, "the answer waits for the end of the request") }
            }
            #expect(delivered == (size == 900))
            if !delivered { #expect(a.receive(b.next().bytes).completed?.get("Error-Code") == "400") }
        }
    }

    @Test("A bad request without reply gets no answer; a bad response fails its request")
    func badProperties() throws {
        let a = Engine(.v3)
        let b = Engine(.v3)
        let bad = Message(flags: .noReply)
        [UInt8("x".utf8.first ?? 0)].withUnsafeBytes { _ = bad.properties.append($0) }
        a.send(bad)
        #expect(b.receive(a.next().bytes).isNone && !b.hasOutput)
        let request = Message()
        a.send(request)
        let received = try #require(b.receive(a.next().bytes).completed)
        let response = Message(.response, number: received.number)
        [UInt8(1)].withUnsafeBytes { _ = response.properties.append($0) }
        b.send(response)
        guard case .messageFailed(let failed, .properties) = a.receive(b.next().bytes) else {
            Issue.record("not failed")
            return
        }
        #expect(failed.request === request)
        #expect(a.pendingRequests == 0 && a.isIdle)
    }

    @Test("A second response, and one to a request without reply, is ignored and the codec goes on")
    func unexpectedResponses() throws {
        for flags in [MessageFlags(), .compressed] {
            let a = Engine(.v3)
            let b = Engine(.v3)
            a.send(Message(flags: .noReply))
            b.receive(a.next().bytes)
            b.send(Message(.response, body: text(40_000), flags: flags, number: 1))
            for frame in b.drain() { #expect(a.receive(frame).isNone) }
            a.send(Message())
            b.receive(a.next().bytes)
            b.send(Message(.response, body: text(100), flags: flags, number: 2))
            b.send(Message(.response, body: text(100), flags: flags, number: 2))
            #expect(a.receive(b.next().bytes).completed?.bodyArray == text(100))
            #expect(a.receive(b.next().bytes).isNone)
            b.send(Message(.response, number: 3))
            #expect(a.receive(b.next().bytes).error?.kind == .responseNumber)
        }
    }

    @Test("A withdrawn message is never sent and takes no number")
    func withdraw() throws {
        let a = Engine(.v3)
        let messages = (0..<5).map { Message(.request, [("n", "\($0)")], body: pattern(10), flags: .urgent) }
        for message in messages { a.send(message) }
        #expect(a.withdraw(messages[2]) && a.withdraw(messages[4]) && a.withdraw(messages[0]))
        #expect(!a.withdraw(messages[2]) && !a.withdraw(Message()))
        #expect(a.queuedMessages == 2)
        let b = Engine(.v3)
        let names = a.drain().compactMap { b.receive($0).completed?.get("n") }
        #expect(names == ["1", "3"])
        #expect(!a.withdraw(messages[1]), "it is gone")
        #expect(a.queuedBytes == 0 && a.pendingRequests == 2)
        // Withdrawn messages can be sent later.
        a.send(messages[2])
        #expect(a.drain().compactMap { b.receive($0).completed?.get("n") } == ["2"])
    }

    @Test("The response of an abandoned request is dropped, whenever it is abandoned", arguments: 0..<5)
    func abandon(stage: Int) throws {
        for flags in [MessageFlags(), .compressed] {
            let a = Engine(.v3)
            let b = Engine(.v3)
            let request = Message(flags: flags)
            a.send(request)
            if stage == 0 { a.abandon(request) }
            let received = try #require(b.receive(a.next().bytes).completed)
            if stage == 1 { a.abandon(request) }
            b.send(Message(.response, body: text(stage == 4 ? 10 : 300_000), flags: flags, number: received.number))
            var index = 0
            var turns = 0
            while b.hasOutput, turns < 1000 {
                turns += 1
                let event = a.receive(b.next().bytes)
                #expect(event.error == nil)
                index += 1
                if stage >= 2 && stage < 4, index == stage - 1 {
                    a.abandon(request)
                    #expect(a.state.pointee.heldBytes == 0)
                } else if stage < 2 || index >= stage, stage != 4 {
                    #expect(event.isNone, "stage \(stage), frame \(index)")
                }
                // Acknowledgements go on, or the peer would be stuck.
                for answer in a.drain() { b.receive(answer) }
            }
            if stage == 4 { a.abandon(request) }
            #expect(b.isIdle && a.isIdle)
            #expect(a.pendingRequests == 0 && a.state.pointee.heldBytes == 0)
            a.send(Message(body: text(50), flags: flags))
            #expect(b.receive(a.next().bytes).completed?.bodyArray == text(50))
        }
    }

    @Test("A source that fails before the first frame costs only its message; later, the connection")
    func failingSource() throws {
        for version in [ProtocolVersion.v1, .v2, .v3] {
            for flags in [MessageFlags(), .compressed] {
                let a = Engine(version)
                let bad = Message(flags: flags)
                bad.sources = [ScriptedSource([.give([1, 2, 3]), .fail])]
                a.send(bad)
                a.send(Message(body: [9]))
                let refused = a.next().frame
                #expect(refused.failure == .bodySource && refused.message === bad && refused.count == 0)
                #expect(refused.error == nil)
                #expect(Engine(version).receive(a.next().bytes).completed?.bodyArray == [9])

                let late = Message(flags: flags)
                late.sources = [ScriptedSource([.give(noise(50_000, 1)), .fail])]
                a.send(late)
                var error: ProtocolError?
                var turns = 0
                while error == nil, turns < 100 {
                    turns += 1
                    error = a.next().frame.error
                }
                #expect(error?.kind == .bodySource && error?.webSocketCode == 1011)
                #expect(a.takeAll().requests.contains { $0 === late })
            }
        }
    }

    private final class Liar: BodySource {
        let answer: BodyRead
        init(_ answer: BodyRead) { self.answer = answer }
        override func read(into buffer: UnsafeMutableRawBufferPointer) -> BodyRead { answer }
    }

    @Test("A source that claims impossible sizes fails its message")
    func lyingSource() {
        for answer in [BodyRead.bytes(0), .bytes(-1), .bytes(Int.max), .end(-1), .end(Int.max)] {
            let a = Engine(.v3)
            let message = Message()
            message.sources = [Liar(answer)]
            a.send(message)
            #expect(a.next().frame.failure == .bodySource)
        }
    }

    @Test("A source that has nothing makes its message wait and nobody else")
    func waiting() throws {
        for version in [ProtocolVersion.v1, .v2, .v3] {
            for flags in [MessageFlags(), .compressed] {
                let a = Engine(version)
                let b = Engine(version)
                let slow = Message(.request, [("Profile", "slow")], flags: flags.union(.noReply))
                slow.sources = [ScriptedSource([.wait, .wait, .give([1, 2]), .wait, .give([3]), .wait])]
                a.send(slow)
                var bodies: [[UInt8]] = []
                var turns = 0
                while !slow.isFinished, turns < 50 {
                    turns += 1
                    a.send(Message(body: [UInt8(turns)], flags: .noReply))
                    for frame in a.drain() {
                        let event = b.receive(frame)
                        #expect(event.error == nil)
                        if let message = event.completed { bodies.append(message.bodyArray) }
                    }
                    a.resume(slow)
                    a.resume(slow)
                }
                #expect(slow.isFinished)
                #expect(bodies.contains([1, 2, 3]))
                #expect(bodies.count == turns + 1)
            }
        }
    }

    @Test("The end gives back everything that is not done, once")
    func takeAll() throws {
        let a = Engine(.v3)
        let b = Engine(.v3)
        // b asks, so that a has something to answer.
        b.send(Message())
        let asked = try #require(a.receive(b.next().bytes).completed)
        let answered = Message(.request, [("n", "answered")])
        a.send(answered)
        b.receive(a.next().bytes)
        b.send(Message(.response, number: answered.number))
        a.receive(b.next().bytes)

        let waiting = Message(.request, [("n", "waiting")])
        a.send(waiting)
        b.receive(a.next().bytes)
        let partly = Message(.request, [("n", "partly")])
        a.send(partly)
        b.receive(a.next().bytes)
        b.send(Message(.response, body: pattern(50_000), number: partly.number))
        guard case .began(let partial) = a.receive(b.next().bytes) else {
            Issue.record("not begun")
            return
        }
        let abandoned = Message()
        a.send(abandoned)
        b.receive(a.next().bytes)
        a.abandon(abandoned)
        let underWay = Message(body: pattern(50_000))
        a.send(underWay)
        _ = a.next()
        let paused = Message(body: pattern(500_000), flags: .noReply)
        a.send(paused)
        for _ in 0..<16 { _ = a.next() }
        let response = Message(.response, number: asked.number)
        a.send(response)
        let queued = Message()
        a.send(queued)

        let left = a.takeAll()
        #expect(Set(left.requests.map(ObjectIdentifier.init)).count == left.requests.count)
        func has(_ list: [Message], _ message: Message) -> Bool { list.contains { $0 === message } }
        #expect(has(left.requests, waiting) && has(left.requests, partly) && has(left.requests, queued))
        #expect(!has(left.requests, answered) && !has(left.requests, abandoned))
        #expect(has(left.requests, underWay) || underWay.isFinished)
        #expect(has(left.outgoing, response) && has(left.outgoing, paused))
        #expect(left.incoming.count == 1 && left.incoming.first === partial)
        let again = a.takeAll()
        #expect(again.requests.isEmpty && again.outgoing.isEmpty && again.incoming.isEmpty)
        #expect(a.isIdle && a.queuedBytes == 0 && a.queuedMessages == 0)
    }

    private final class Tracked: Message, @unchecked Sendable {
        nonisolated(unsafe) static var alive = 0
        override init() {
            super.init()
            Self.alive += 1
        }
        deinit { Self.alive -= 1 }
    }

    @Test("No message outlives its engine and its owner")
    func leaks() {
        do {
            let a = Engine(version: .v3, limits: Limits(), compressionLevel: 6, makeMessage: { Tracked() })
            let b = Engine(version: .v3, limits: Limits(), compressionLevel: 6, makeMessage: { Tracked() })
            for index in 0..<50 {
                let message = Tracked()
                pattern(index * 5000).withUnsafeBytes { _ = message.body.append($0) }
                message.flags = index % 3 == 0 ? .urgent : []
                a.send(message)
            }
            for _ in 0..<60 where a.hasOutput {
                if let request = b.receive(a.next().bytes).completed {
                    b.send(Message(.response, body: pattern(30_000), number: request.number))
                }
            }
            for _ in 0..<10 where b.hasOutput { a.receive(b.next().bytes) }
            #expect(Tracked.alive > 0)
        }
        #expect(Tracked.alive == 0)
    }

    @Test("Version 1 frames are measured from as many bytes as there are")
    func v1Lengths() {
        let frame = Array(hex: "9b34f206000000010000000e0000")
        for count in 0..<12 {
            frame.prefix(count).withUnsafeBytes { #expect(Engine.v1FrameLength($0) == .needMore) }
        }
        for count in 12...14 {
            frame.prefix(count).withUnsafeBytes { #expect(Engine.v1FrameLength($0) == .length(14)) }
        }
        for index in 0..<4 {
            var wrong = frame
            wrong[index] ^= 1
            wrong.prefix(index + 1).withUnsafeBytes {
                if case .failed = Engine.v1FrameLength($0) {} else { Issue.record("byte \(index)") }
            }
        }
        Array(hex: "9b34f206000000010000000b").withUnsafeBytes {
            if case .failed = Engine.v1FrameLength($0) {} else { Issue.record("length 11") }
        }
    }

    @Test("Noise, and good frames with a flipped bit, never trap and never deliver wrong bytes in version 3")
    func flippedBits() throws {
        var random = Seeded(99)
        let a = Engine(.v3)
        for index in 0..<6 {
            a.send(
                Message(
                    .request, [("Profile", "p"), ("é", "x")], body: text(200 + index),
                    flags: index % 2 == 0 ? .compressed : []))
        }
        let frames = a.drain()
        for _ in 0..<4000 {
            for version in [ProtocolVersion.v1, .v2, .v3] {
                let b = Engine(version)
                let index = Int(random.next() % UInt64(frames.count))
                for (position, frame) in frames.enumerated() {
                    var bytes = frame
                    if position == index {
                        bytes[Int(random.next() % UInt64(bytes.count))] ^= UInt8(1) << UInt8(random.next() % 8)
                    }
                    let event = b.receive(bytes)
                    if version == .v3, let message = event.completed {
                        #expect(message.bodyArray == text(200 + position))
                    }
                    if event.error != nil { break }
                }
                _ = b.drain()
                _ = b.takeAll()
            }
        }
        for seed in 0..<4000 as Range<UInt64> {
            for version in [ProtocolVersion.v1, .v2, .v3] {
                let b = Engine(version)
                for step in 0..<4 as Range<UInt64> {
                    var bytes = noise(Int(random.next() % 40), seed &* 4 &+ step)
                    if version == .v1 {
                        bytes = Array(hex: "9b34f206000000010000") + [0, UInt8(bytes.count + 12)] + bytes
                    }
                    if version == .v2 { bytes = [1, UInt8(random.next() & 0x7F)] + bytes }
                    if b.receive(bytes).error != nil { break }
                }
                _ = b.takeAll()
            }
        }
    }

    @Test("An answer to a request that fails on its way waits for the request's end and then goes")
    func answerToFailed() throws {
        var limits = Limits()
        limits.message = 20_000
        let a = Engine(.v3)
        let b = Engine(.v3, limits: limits)
        a.send(Message(body: pattern(60_000)))
        guard case .began(let request) = b.receive(a.next().bytes) else {
            Issue.record("not begun")
            return
        }
        b.send(Message(.response, body: [7], number: request.number))
        guard case .messageFailed(let failed, .tooLarge) = b.receive(a.next().bytes) else {
            Issue.record("not failed")
            return
        }
        #expect(failed === request && !b.hasOutput)
        while a.hasOutput {
            #expect(!b.hasOutput)
            #expect(b.receive(a.next().bytes).isNone)
        }
        let answers = b.drain()
        #expect(answers.count == 1, "the owner's answer, and none of the engine")
        #expect(a.receive(answers.first ?? []).completed?.bodyArray == [7])
        #expect(b.isIdle && a.isIdle && b.queuedMessages == 0)
    }
}
