import BLIPProtocol
import WebSocketProtocol

/// One end of a connection as the runtime runs it: an engine, a parser, a closing handshake, what waits to be written;
/// and a program that sends requests, answers, streams, cancels.
final class Side {
    enum Phase { case open, closing, closed }

    struct Complaint: Error, CustomStringConvertible {
        let description: String
    }

    let name: String
    let isTame: Bool
    private let engine: Engine
    private let census: Census
    private let limits: Limits
    private var parser: WebSocketParser
    private var closing: WebSocketCloseHandshake
    private let isClient: Bool
    private var random: Seeded
    private let quota: Int
    private let largestBody: Int
    unowned let world: World

    private(set) var phase = Phase.open
    private(set) var records: [Record] = []
    private var input: [UInt8] = []
    private var output: [UInt8] = []
    private var outputStart = 0
    private var flushing: [(end: Int, record: Record)] = []
    private var outputEnd = 0
    private var pong: [UInt8]?
    private var mustWriteClose: UInt16??
    private var deferred: [Tracked] = []
    private var streams: [Tracked] = []
    private var lastHeard: UInt64 = 0
    private var hasFinished = false
    private(set) var wasAskedToClose = false
    private(set) var isBroken = false
    private var trickling: [(message: Tracked, body: Trickle)] = []

    init(_ name: String, _ world: World, _ shape: World.Shape, seed: UInt64, isClient: Bool) {
        self.name = name
        self.world = world
        self.isClient = isClient
        random = Seeded(seed)
        quota = shape.requests
        largestBody = shape.largestBody
        isTame = shape.isTame
        var limits = Limits()
        limits.outgoingFrame = shape.frame
        limits.smallFrame = min(limits.smallFrame, shape.frame)
        if random.oneIn(2) { limits.inflatedAtOnce = shape.frame / 2 }
        self.limits = limits
        let census = world.census
        self.census = census
        engine = Engine(
            version: shape.version, limits: limits, compressionLevel: shape.level,
            makeMessage: { Tracked(census) })
        let role: WebSocketRole = isClient ? .client : .server
        parser = WebSocketParser(role: role, maximumMessage: limits.incomingFrame)
        closing = WebSocketCloseHandshake(role: role, timeout: 400)
    }

    var isDone: Bool { records.count == quota && records.allSatisfy { $0.outcome != nil } }
    /// Nothing of it is under way or waits for an answer.
    var isIdle: Bool { engine.isIdle && output.count == outputStart && deferred.isEmpty && streams.isEmpty }

    private func complain(_ text: String) throws -> Never { throw Complaint(description: "\(name): \(text)") }

    // MARK: The program

    /// A few random things that programs do.
    func act(_ now: UInt64) throws {
        guard phase == .open else { return }
        if records.count < quota, random.oneIn(2) { try send() }
        if let index = deferred.indices.randomElement(using: &random), random.oneIn(2) {
            answer(deferred.remove(at: index))
        }
        for message in streams where random.oneIn(2) { try read(message, most: 1 + random.size(100_000)) }
        // Also of a request that was cancelled: what has begun is sent to its end.
        for (message, trickle) in trickling where !message.isFinished && random.oneIn(2) {
            trickle.patience += 1 + random.below(8)
            engine.resume(message)
        }
        if !isTame, random.oneIn(12), let record = records.randomElement(using: &random) { try cancel(record) }
        if random.oneIn(40), output.isEmpty { write(.ping, Array("still there?".utf8)) }
        if random.oneIn(60) { engine.releaseIdleMemory() }
    }

    private func send() throws {
        let message = Tracked(census)
        let id = records.count
        let body = Self.body(id, size: random.size(largestBody), isText: random.oneIn(2))
        message.set("id", "\(id)")
        if random.oneIn(3) { message.set("Profile", "simulated") }
        message.flags = MessageFlags(rawValue: UInt8(truncatingIfNeeded: random.next()) & 0x18)
        if random.oneIn(5) { message.flags.insert(.noReply) }
        if random.oneIn(4) {
            let held = random.below(body.count + 1)
            message.fill(body.prefix(held))
            let trickle = Trickle(body[held...], piece: 1 + random.size(20_000), patience: random.below(4))
            message.sources = [trickle]
            trickling.append((message, trickle))
        } else {
            message.fill(body[...])
        }
        let record = Record(id: id, message, body)
        message.record = record
        records.append(record)
        engine.send(message)
    }

    private func answer(_ request: Tracked) {
        let response = Tracked(census)
        response.kind = random.oneIn(6) ? .error : .response
        response.number = request.number
        response.flags = MessageFlags(rawValue: UInt8(truncatingIfNeeded: random.next()) & 0x18)
        if response.kind == .error { response.set("Error-Code", "7") }
        response.set("re", request.get("id") ?? "?")
        response.fill(Self.reply(to: request.collected + request.incomingBody)[...])
        engine.send(response)
    }

    private func cancel(_ record: Record) throws {
        guard record.outcome == nil, !record.isCancelled, record.wantsReply else { return }
        record.isCancelled = true
        if !engine.withdraw(record.message) { engine.abandon(record.message) }
        if let response = streams.first(where: { $0.request === record.message }) {
            streams.removeAll { $0 === response }
        }
        try complete(record, .cancelled)
    }

    private func complete(_ record: Record, _ outcome: Record.Outcome) throws {
        if hasFinished { try complain("request \(record.id) completes after the end") }
        if let before = record.outcome {
            try complain("request \(record.id) completes twice: \(before), then \(outcome)")
        }
        record.outcome = outcome
    }

    private func read(_ message: Tracked, most: Int) throws {
        let bytes = message.incomingBody.prefix(most)
        message.collected += bytes
        engine.consume(message, bytes.count)
    }

    static func body(_ id: Int, size: Int, isText: Bool) -> [UInt8] {
        var random = Seeded(UInt64(id) &+ UInt64(size) << 20)
        if isText { return (0..<size).map { UInt8(truncatingIfNeeded: 0x41 + ($0 + id) % 23) } }
        var bytes: [UInt8] = []
        bytes.reserveCapacity(size + 8)
        while bytes.count < size { withUnsafeBytes(of: random.next()) { bytes.append(contentsOf: $0) } }
        return Array(bytes.prefix(size))
    }

    static func reply(to body: [UInt8]) -> [UInt8] { body.reversed() }

    // MARK: Output

    func write(to link: Link, _ now: UInt64) throws {
        guard phase != .closed else { return }
        if link.isReset { return try finish() }
        fill()
        let taken = link.write(output[outputStart...], now: now)
        outputStart += taken
        if outputStart == output.count {
            output.removeAll(keepingCapacity: true)
            outputStart = 0
            if closing.sentCode != nil, mustWriteClose == nil { try follow(closing.didSend(now: now), link) }
        }
        let done = outputEnd - (output.count - outputStart)
        while let first = flushing.first, first.end <= done {
            flushing.removeFirst()
            try complete(first.record, .sent)
        }
    }

    private func fill() {
        if let payload = pong {
            pong = nil
            write(.pong, payload)
        }
        if let code = mustWriteClose {
            mustWriteClose = nil
            var bytes = [UInt8](repeating: 0, count: WebSocketFrame.maximumControlFrame)
            let size = bytes.withUnsafeMutableBytes { target -> Int in
                guard let base = target.baseAddress else { return 0 }
                return WebSocketFrame.writeClose(
                    code: code, reason: UnsafeRawBufferPointer(start: nil, count: 0), maskKey: key(), to: base)
            }
            append(bytes.prefix(size))
        }
        guard phase == .open else { return }
        let room = random.oneIn(4) ? 64 + random.below(limits.outgoingFrame) : limits.outgoingFrame + 64
        let buffer = UnsafeMutableRawBufferPointer.allocate(byteCount: room, alignment: 8)
        defer { buffer.deallocate() }
        while engine.hasOutput, output.count - outputStart < 40_000 {
            let frame = engine.nextFrame(into: buffer)
            if frame.count == 0 {
                if frame.failure != nil || frame.error != nil { isBroken = true }
                break
            }
            writeMessage(Array(buffer.prefix(frame.count)))
            if frame.isLast, let message = frame.message as? Tracked, let record = message.record, !record.wantsReply {
                flushing.append((outputEnd, record))
            }
        }
    }

    private func key() -> UInt32? { isClient ? UInt32(truncatingIfNeeded: random.next()) : nil }

    /// A BLIP frame as one WebSocket message, now and then in fragments, with a ping between.
    private func writeMessage(_ bytes: [UInt8]) {
        var rest = bytes[...]
        var opcode = WebSocketOpcode.binary
        let cuts = random.oneIn(5) ? random.below(4) : 0
        for _ in 0..<cuts {
            let count = random.below(rest.count + 1)
            write(opcode, Array(rest.prefix(count)), final: false)
            rest = rest.dropFirst(count)
            opcode = .continuation
            if random.oneIn(3) { write(.ping, [1, 2, 3]) }
        }
        write(opcode, Array(rest), final: true)
    }

    private func write(_ opcode: WebSocketOpcode, _ payload: [UInt8], final: Bool = true) {
        guard closing.maySend || opcode == .pong, !(opcode == .pong && phase == .closed) else { return }
        var bytes = [UInt8](repeating: 0, count: payload.count + WebSocketFrame.maximumHeader)
        let key = key()
        let size = bytes.withUnsafeMutableBytes { target -> Int in
            guard let base = target.baseAddress else { return 0 }
            let header = WebSocketFrame.writeHeader(
                opcode: opcode, final: final, payload: payload.count, maskKey: key, to: base)
            let body = UnsafeMutableRawBufferPointer(start: base + header, count: payload.count)
            body.copyBytes(from: payload)
            if let key { WebSocketFrame.mask(body, key: key) }
            return header + payload.count
        }
        append(bytes.prefix(size))
    }

    private func append(_ bytes: ArraySlice<UInt8>) {
        output += bytes
        outputEnd += bytes.count
    }

    // MARK: Input

    func read(from link: Link, _ now: UInt64) throws {
        guard phase != .closed else { return }
        switch link.read(now: now) {
        case .nothing: break
        case .end, .reset: return try finish()
        case .bytes(let bytes):
            lastHeard = now
            input += bytes
            try parse(now, link)
        }
        // As keep-alive does.
        if now > lastHeard + 3000 { return try finish() }
        if closing.timeOut(now: now) == .drop { try finish() }
    }

    private func parse(_ now: UInt64, _ link: Link) throws {
        var consumed = 0
        defer { if phase != .closed { input.removeFirst(consumed) } }
        // In memory of its own size, so that nothing behind it can be read unseen.
        let bytes = UnsafeMutableRawBufferPointer.allocate(byteCount: input.count, alignment: 1)
        defer { bytes.deallocate() }
        bytes.copyBytes(from: input)
        while consumed < bytes.count, phase != .closed {
            switch parser.next(UnsafeMutableRawBufferPointer(rebasing: bytes[consumed...])) {
            case .binary(let payload, let count):
                consumed += count
                if phase == .open { try handle(engine.receive(payload)) }
                while phase == .open, engine.isSuspended { try handle(engine.continueFrame()) }
            case .incomplete: return
            case .consumed(let count): consumed += count
            case .ping(let payload, let count):
                pong = Array(payload)
                consumed += count
            case .pong(_, let count): consumed += count
            case .close(let code, _, let count):
                consumed += count
                if phase == .open { try startClosing() }
                try follow(closing.received(code: code, now: now), link)
            case .text: try complain("text arrives, although none was sent")
            case .failed(let code, let text): try complain("bad WebSocket input: \(code) \(text)")
            }
        }
    }

    private func handle(_ event: consuming BLIPProtocol.Event) throws {
        switch consume event {
        case .none, .acknowledged, .suspended: break
        case .began(let message):
            guard let message = message as? Tracked else { try complain("a message of another kind") }
            try identify(message, isWhole: false)
            if random.oneIn(2) {
                message.isStreamed = true
                streams.append(message)
            }
        case .data(let message):
            if !streams.contains(where: { $0 === message }) { try complain("bytes of a message that is not streamed") }
        case .complete(let message):
            guard let message = message as? Tracked else { try complain("a message of another kind") }
            let isStreamed = streams.contains { $0 === message }
            streams.removeAll { $0 === message }
            if isStreamed { try read(message, most: .max) }
            try complete(message)
        case .messageFailed(_, let failure): try complain("a message fails: \(failure)")
        case .failed(let error): try complain("protocol error: \(error.text)")
        }
    }

    private func identify(_ message: Tracked, isWhole: Bool) throws {
        guard message.kind != .request else { return }
        guard let request = message.request as? Tracked, let record = request.record else {
            try complain("a response to nothing")
        }
        if message.get("re") != "\(record.id)" { try complain("a response to another request") }
        if record.outcome != nil { try complain("a response that nobody waits for") }
    }

    private func complete(_ message: Tracked) throws {
        let body = message.collected + message.incomingBody
        guard message.kind == .request else {
            try identify(message, isWhole: true)
            guard let record = (message.request as? Tracked)?.record else { return }
            if body != Self.reply(to: record.body) { try complain("another body than that of response \(record.id)") }
            return try complete(record, .answered)
        }
        guard let id = message.get("id").flatMap({ Int($0) }), let record = world.record(id, from: self) else {
            try complain("a request that nobody has sent")
        }
        if record.wasSeenByPeer { try complain("request \(id) arrives twice") }
        record.wasSeenByPeer = true
        if body != record.body { try complain("another body than that of request \(id)") }
        guard !message.flags.contains(.noReply) else { return }
        if random.oneIn(3) { deferred.append(message) } else { answer(message) }
    }

    // MARK: The end

    func close(_ now: UInt64, _ link: Link) throws {
        guard phase == .open else { return }
        wasAskedToClose = true
        try startClosing()
        try follow(closing.close(code: 1000, now: now), link)
    }

    private func startClosing() throws {
        phase = .closing
        try failEverything()
    }

    private func follow(_ action: WebSocketCloseHandshake.Action, _ link: Link) throws {
        switch action {
        case .none: break
        case .sendClose(let code): mustWriteClose = .some(code)
        case .finishOutput: world.finishOutput(of: self)
        case .drop: try finish()
        }
    }

    private func failEverything() throws {
        let left = engine.takeAll()
        for message in left.requests + left.outgoing {
            guard let record = (message as? Tracked)?.record, record.outcome == nil else { continue }
            // A request without reply that is wholly cut is among what is being flushed.
            if !flushing.contains(where: { $0.record === record }) { try complete(record, .failed) }
        }
        for (_, record) in flushing where record.outcome == nil { try complete(record, .failed) }
        flushing = []
        streams = []
        deferred = []
        if !engine.isIdle || engine.hasOutput { try complain("an engine that has given everything back is not idle") }
        for record in records where record.outcome == nil { try complain("request \(record.id) never completes") }
    }

    private func finish() throws {
        guard phase != .closed else { return }
        if phase == .open { try startClosing() }
        phase = .closed
        hasFinished = true
        closing.transportEnded()
        world.dropped(by: self)
        input = []
        output = []
        outputStart = 0
    }
}
