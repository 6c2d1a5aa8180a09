import Testing

@testable import BLIPProtocol

/// One side of a conversation: sends requests, answers those of the other side, and checks everything.
private final class Side {
    let engine: Engine
    var random: Seeded
    var outgoing: [[UInt8]] = []
    /// Requests that have no response yet, by their id.
    var waiting: [Int: Message] = [:]
    var unanswered: [Message] = []
    /// Streamed messages that are not read to the end, with what was read.
    var streams: [(message: Message, read: [UInt8])] = []
    /// Our messages whose source may be waiting.
    var sourced: [Message] = []
    var sent = 0
    var finished = 0
    var requestsSeen: Set<Int> = []
    var responsesSeen: Set<Int> = []
    var acknowledgements = 0

    init(_ version: ProtocolVersion, _ limits: Limits, seed: UInt64) {
        engine = Engine(version, limits: limits, level: Int32(seed % 10))
        random = Seeded(seed)
    }

    static func body(_ id: Int, isResponse: Bool) -> [UInt8] {
        var random = Seeded(UInt64(id) &* 2 &+ (isResponse ? 1 : 0))
        let size =
            switch random.next() % 8 {
            case 0: 0
            case 1...4: Int(random.next() % 300)
            case 5, 6: Int(random.next() % 40_000)
            default: Int(random.next() % 400_000)
            }
        return random.next() % 2 == 0 ? text(size) : noise(size, UInt64(id))
    }

    func flags() -> MessageFlags { MessageFlags(rawValue: UInt8(random.next() & 0x18)) }

    func fill(_ message: Message, _ body: [UInt8]) {
        let inline = body.isEmpty ? 0 : Int(random.next() % UInt64(body.count + 1))
        guard random.next() % 3 == 0 else {
            body.withUnsafeBytes { _ = message.body.append($0) }
            return
        }
        body[..<inline].withUnsafeBytes { _ = message.body.append($0) }
        let rest = Array(body[inline...])
        if random.next() % 2 == 0 {
            message.sources = [ScriptedSource([.give(rest)], known: UInt64(rest.count))]
            return
        }
        var steps: [ScriptedSource.Step] = []
        var at = 0
        while at < rest.count {
            let size = min(rest.count - at, 1 + Int(random.next() % 30_000))
            steps.append(.give(Array(rest[at..<at + size])))
            if random.next() % 3 == 0 { steps.append(.wait) }
            at += size
        }
        message.sources = [ScriptedSource([]), ScriptedSource(steps), ScriptedSource([.wait])]
    }

    func send(_ id: Int) {
        let message = Message(.request, [("Profile", "test"), ("id", "\(id)")], flags: flags())
        if random.next() % 5 == 0 { message.flags.insert(.noReply) }
        if random.next() % 5 == 0 {
            message.add("Long", String(repeating: "é", count: Int(random.next() % 4000)))
        }
        fill(message, Self.body(id, isResponse: false))
        engine.send(message)
        sourced.append(message)
        sent += 1
        if !message.flags.contains(.noReply) { waiting[id] = message }
    }

    func answer() {
        guard !unanswered.isEmpty else { return }
        let request = unanswered.remove(at: Int(random.next() % UInt64(unanswered.count)))
        let id = Int(request.get("id") ?? "") ?? -1
        let isError = random.next() % 4 == 0
        let message = Message(
            isError ? .error : .response, isError ? [("Error-Code", "7"), ("re", "\(id)")] : [("re", "\(id)")],
            flags: flags(), number: request.number)
        fill(message, Self.body(id, isResponse: true))
        engine.send(message)
        sourced.append(message)
        sent += 1
    }

    /// Lets the engine cut some frames.
    func cut(_ most: Int) {
        for _ in 0..<most where engine.hasOutput {
            let (bytes, frame) = engine.next()
            #expect(frame.error == nil && frame.failure == nil)
            guard frame.count > 0 else { return }
            if frame.message == nil { acknowledgements += 1 }
            if frame.isLast {
                finished += 1
                sourced.removeAll { $0 === frame.message }
            }
            outgoing.append(bytes)
        }
    }

    func resume() { for message in sourced { engine.resume(message) } }

    /// Takes some frames of the other side.
    func take(from other: Side, _ most: Int) {
        let count = min(most, other.outgoing.count)
        for frame in other.outgoing.prefix(count) { take(frame) }
        other.outgoing.removeFirst(count)
    }

    private func take(_ frame: [UInt8]) {
        switch engine.receive(frame) {
        case .began(let message):
            #expect(!message.isComplete)
            #expect(message.propertyCount > 0)
            if random.next() % 2 == 0 {
                message.isStreamed = true
                streams.append((message, []))
            }
        case .data(let message):
            #expect(message.isStreamed)
        case .complete(let message):
            #expect(message.isComplete)
            if let index = streams.firstIndex(where: { $0.message === message }) {
                read(index, most: Int.max)
                let whole = streams.remove(at: index).read
                check(message, whole)
            } else {
                check(message, message.bodyArray)
            }
        case .messageFailed(_, let failure): Issue.record("\(failure)")
        case .failed(let error): Issue.record("\(error.text)")
        case .none, .acknowledged, .suspended: break
        }
    }

    func read(_ index: Int, most: Int) {
        let message = streams[index].message
        let available = message.incomingBody
        let count = min(most, available.count)
        streams[index].read.append(contentsOf: available.prefix(count))
        engine.consume(message, count)
    }

    func check(_ message: Message, _ body: [UInt8]) {
        #expect(message.bodyBytesReceived == UInt64(body.count))
        if message.kind == .request {
            let id = Int(message.get("id") ?? "") ?? -1
            #expect(requestsSeen.insert(id).inserted, "a request came twice")
            #expect(body == Self.body(id, isResponse: false))
            if !message.flags.contains(.noReply) { unanswered.append(message) }
        } else {
            let id = Int(message.get("re") ?? "") ?? -1
            #expect(responsesSeen.insert(id).inserted, "a response came twice")
            #expect(body == Self.body(id, isResponse: true))
            #expect((message.kind == .error) == (message.get("Error-Code") != nil))
            #expect(message.request != nil && message.request === waiting.removeValue(forKey: id))
        }
    }
}

@Suite("Two engines")
struct PairTests {
    @Test(
        "Random messages, interleavings and readers deliver everything exactly once",
        arguments: [ProtocolVersion.v1, .v2, .v3], 0..<12 as Range<UInt64>)
    func everythingOnce(version: ProtocolVersion, seed: UInt64) throws {
        var random = Seeded(seed &* 31)
        var limits = Limits()
        limits.outgoingFrame = [64, 300, 4096, 16384, 32768][Int(random.next() % 5)]
        limits.smallFrame = [64, 1000, 4096][Int(random.next() % 3)]
        let a = Side(version, limits, seed: seed &* 2)
        let b = Side(version, limits, seed: seed &* 2 &+ 1)
        let total = 40
        var ids = 0
        var turns = 0
        while turns < 200_000 {
            turns += 1
            let (one, other) = random.next() % 2 == 0 ? (a, b) : (b, a)
            switch random.next() % 8 {
            case 0 where ids < total:
                one.send(ids)
                ids += 1
            case 1: one.answer()
            case 2, 3: one.cut(1 + Int(random.next() % 40))
            case 4, 5: one.take(from: other, 1 + Int(random.next() % 40))
            case 6: one.resume()
            default:
                for index in one.streams.indices {
                    one.read(index, most: Int(random.next() % 100_000))
                }
            }
            let isDone =
                ids == total
                && [a, b].allSatisfy {
                    $0.waiting.isEmpty && $0.unanswered.isEmpty && $0.outgoing.isEmpty && $0.engine.isIdle
                }
            if isDone { break }
        }
        #expect(turns < 200_000, "it never came to an end")
        #expect(a.requestsSeen.count + b.requestsSeen.count == total)
        for side in [a, b] {
            #expect(side.sent == side.finished)
            #expect(side.engine.counters.messagesSent == UInt64(side.sent))
            #expect(side.engine.queuedBytes == 0 && side.engine.queuedMessages == 0)
            #expect(side.engine.pendingRequests == 0 && side.engine.unfinishedIncoming == 0)
            #expect(side.engine.state.pointee.heldBytes == 0)
            #expect(side.engine.state.pointee.partialResponses == 0)
            #expect(side.streams.isEmpty)
            if version == .v1 { #expect(side.acknowledgements == 0) }
        }
    }

    @Test("The same calls give the same bytes", arguments: [ProtocolVersion.v1, .v2, .v3])
    func deterministic(version: ProtocolVersion) {
        func run() -> [[UInt8]] {
            let engine = Engine(version)
            for index in 0..<30 {
                engine.send(
                    Message(
                        .request, [("Profile", "p\(index)")], body: text(index * 997),
                        flags: MessageFlags(rawValue: UInt8(index % 4) << 3)))
            }
            return engine.drain()
        }
        #expect(run() == run())
    }

    @Test("First frames go out in rising number order, whatever is urgent")
    func numberOrder() {
        var random = Seeded(5)
        let engine = Engine(.v3)
        var highest: UInt64 = 0
        var started: Set<UInt64> = []
        for _ in 0..<400 {
            if random.next() % 3 == 0 {
                engine.send(
                    Message(
                        body: pattern(Int(random.next() % 60_000)),
                        flags: random.next() % 2 == 0 ? [.urgent, .noReply] : .noReply))
            }
            guard engine.hasOutput, let head = FrameHead(engine.next().bytes) else { continue }
            if started.insert(head.number).inserted {
                #expect(head.number == highest + 1)
                highest = head.number
            }
        }
        #expect(highest > 20)
    }

    @Test("A frame is small if and only if its message is not urgent and the next one is")
    func frameSizes() {
        let engine = Engine(.v3)
        let slow = Message(body: pattern(100_000), flags: .noReply)
        engine.send(slow)
        #expect(engine.next().frame.count == 16384)
        engine.send(Message(body: pattern(50_000), flags: [.urgent, .noReply]))
        // The urgent one is second: one normal message may come before it.
        #expect(engine.next().frame.count == 4096)
        #expect(engine.next().frame.count == 16384)
        let other = engine.next()
        #expect(other.frame.message === slow && other.frame.count == 4096)
    }

    @Test("A response to a request that has not arrived whole waits until it has")
    func earlyResponse() throws {
        let a = Engine(.v3)
        let b = Engine(.v3)
        a.send(Message(body: pattern(40_000)))
        guard case .began(let request) = b.receive(a.next().bytes) else {
            Issue.record("not begun")
            return
        }
        let response = Message(.response, body: [1, 2, 3], number: request.number)
        b.send(response)
        #expect(!b.hasOutput && b.queuedMessages == 1)
        #expect(b.receive(a.next().bytes).isNone)
        #expect(!b.hasOutput)
        #expect(b.receive(a.next().bytes).completed === request)
        #expect(b.hasOutput)
        #expect(a.receive(b.next().bytes).completed?.bodyArray == [1, 2, 3])

        // And it can be taken back before.
        a.send(Message(body: pattern(40_000)))
        guard case .began(let second) = b.receive(a.next().bytes) else { return }
        let late = Message(.response, number: second.number)
        b.send(late)
        #expect(b.withdraw(late))
        #expect(b.queuedMessages == 0 && b.queuedBytes == 0)
        while a.hasOutput { b.receive(a.next().bytes) }
        #expect(!b.hasOutput)
    }

    @Test("A response that comes before the request is fully sent is delivered")
    func responseBeforeEnd() throws {
        let a = Engine(.v3)
        let request = Message(body: pattern(40_000))
        a.send(request)
        _ = a.next()
        // What another implementation might send: an empty response with its checksum.
        let other = Engine(.v3)
        other.send(Message(.response, number: 1))
        let response = try #require(a.receive(other.next().bytes).completed)
        #expect(response.request === request)
        #expect(!request.isFinished)
        let left = a.takeAll()
        #expect(left.requests.isEmpty && left.outgoing.contains { $0 === request })
    }

    @Test("One-frame messages in recycled objects cost no new buffers")
    func recycling() throws {
        let message = Message()
        let received = Message()
        let b = Engine(version: .v3, limits: Limits(), compressionLevel: 6, makeMessage: { received })
        let a = Engine(.v3)
        var bases: Set<UnsafeMutableRawPointer?> = []
        for _ in 0..<50 {
            message.reset()
            message.add("Profile", "echo")
            pattern(64).withUnsafeBytes { _ = message.body.append($0) }
            message.flags = .noReply
            a.send(message)
            received.reset()
            #expect(b.receive(a.next().bytes).completed === received)
            #expect(received.bodyArray == pattern(64))
            bases.insert(received.state.pointee.content.base)
            bases.insert(message.state.pointee.body.base)
            bases.insert(message.state.pointee.properties.base)
        }
        #expect(bases.count == 3)
    }

    /// Never says that its bytes are the last; only `remaining`, if known, tells.
    private final class Quiet: BodySource {
        private var left: Int
        private let isKnown: Bool

        init(_ size: Int, isKnown: Bool) {
            left = size
            self.isKnown = isKnown
        }

        override var remaining: UInt64? { isKnown ? UInt64(left) : nil }

        override func read(into buffer: UnsafeMutableRawBufferPointer) -> BodyRead {
            let count = min(left, buffer.count)
            buffer.prefix(count).initializeMemory(as: UInt8.self, repeating: 5)
            left -= count
            return count == 0 ? .end(0) : .bytes(count)
        }
    }

    @Test("A body that fills its last frame exactly is not followed by an empty one", arguments: [true, false])
    func exactlyFull(isKnown: Bool) throws {
        var limits = Limits()
        limits.outgoingFrame = 1000
        for frames in 1...3 {
            let engine = Engine(.v3, limits: limits)
            let message = Message(flags: .noReply)
            // Header 2, checksum 4, and once the properties' length.
            message.sources = [Quiet(994 * frames - 1, isKnown: isKnown), Quiet(0, isKnown: isKnown)]
            engine.send(message)
            let sent = engine.drain()
            #expect(sent.count == frames && sent.allSatisfy { $0.count == 1000 })
            let flags = try sent.map { try #require(FrameHead($0)).moreComing }
            #expect(flags == [Bool](repeating: true, count: frames - 1) + [false])
        }
    }
}
