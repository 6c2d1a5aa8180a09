@testable import BLIPProtocol

/// Two engines that talk to each other, with a model beside them: any order of sending, cutting, delivering,
/// answering, consuming, withdrawing, abandoning, with bodies that wait or fail. What was sent arrives once and
/// unchanged, and when everything that can move has moved, both are idle.
@c(LLVMFuzzerTestOneInput)
public func fuzz(_ data: UnsafePointer<UInt8>?, _ size: Int) -> Int32 {
    var input = Input(data, size)
    let pair = Pair(&input)
    while !input.isEmpty, !pair.isOver { pair.step(&input) }
    pair.end()
    pair.untie()
    return 0
}

/// One of our messages, as the model knows it, and what became of it.
private final class Record {
    enum State { case queued, withdrawn, refused }

    let side: Int
    let message = Part()
    let properties: [(String, String)]
    let body: [UInt8]
    let encoded: [UInt8]
    let source: Source?
    var state = State.queued
    var isAbandoned = false
    /// What the other side has of it.
    var received: Part?
    var collected: [UInt8] = []
    var isDelivered = false
    var isFailed = false
    /// Of a request: what answers it. Of a response: what it answers.
    var response: Record?
    var request: Record?
    var isAnswered = false

    init(side: Int, _ properties: [(String, String)], _ body: [UInt8], held: Int, _ source: Source?) {
        self.side = side
        self.properties = properties
        self.body = body
        self.source = source
        encoded = properties.flatMap { Array($0.0.utf8) + [0] + Array($0.1.utf8) + [0] }
        message.record = self
        encoded.withUnsafeBytes { _ = message.properties.append($0) }
        body.prefix(held).withUnsafeBytes { _ = message.body.append($0) }
        if let source { message.sources = [source] }
    }

    var wantsReply: Bool { message.kind == .request && !message.flags.contains(.noReply) }
}

/// A message of either direction.
private final class Part: Message, @unchecked Sendable {
    weak var record: Record?
    var hasBegun = false
    /// Bytes taken and not yet acknowledged.
    var taken = 0
}

/// A body that comes in pieces, with pauses, and may break off.
private final class Source: BodySource {
    private var rest: ArraySlice<UInt8>
    private let piece: Int
    private let isKnown: Bool
    let breaks: UInt8
    private(set) var isBroken = false
    /// Reads until it has nothing, once.
    var patience: Int

    init(_ bytes: ArraySlice<UInt8>, piece: Int, isKnown: Bool, patience: Int, breaks: UInt8) {
        rest = bytes
        self.piece = max(1, piece)
        self.isKnown = isKnown
        self.patience = patience
        self.breaks = breaks
    }

    override var remaining: UInt64? { isKnown ? UInt64(rest.count) : nil }

    override func read(into buffer: UnsafeMutableRawBufferPointer) -> BodyRead {
        check(!buffer.isEmpty, "nothing to be filled")
        check(!isBroken, "read again after it failed")
        if patience == 0 { return .wait }
        patience -= 1
        let count = min(piece, buffer.count, rest.count)
        if breaks != 0, rest.count <= Int(breaks) << 6 {
            isBroken = true
            switch breaks & 3 {
            case 0: return .bytes(buffer.count + 1)
            case 1: return .bytes(0)
            case 2: return .end(-1)
            default: return .failed
            }
        }
        buffer.copyBytes(from: rest.prefix(count))
        rest = rest.dropFirst(count)
        if rest.isEmpty { return count % 2 == 0 || count == 0 ? .end(count) : .bytes(count) }
        return .bytes(count)
    }
}

private final class Pair {
    private let version: ProtocolVersion
    private let limits: Limits
    /// The limits are so narrow that messages may fail.
    private let isTight: Bool
    private var engines: [Engine] = []
    /// Frames on their way from each side.
    private var wire: [[[UInt8]]] = [[], []]
    private var records: [Record] = []
    /// What each side has received and not finished with, and requests to be answered.
    private var open: [[Part]] = [[], []]
    private var unanswered: [[Part]] = [[], []]
    /// Bytes of bodies that may still be made.
    private var budget: Int
    private(set) var isOver = false

    init(_ input: inout Input) {
        let shape = input.byte()
        version = [.v1, .v2, .v3, .v3][Int(shape & 3)]
        var limits = Limits()
        limits.outgoingFrame = [64, 100, 300, 1024, 4096, 16384, 16384, 65535][Int(shape >> 2 & 7)]
        limits.smallFrame = [64, 200, 4096, 4096][Int(shape >> 5 & 3)]
        isTight = shape & 0x80 != 0
        if isTight {
            limits.message = 3000
            limits.properties = 150
            limits.unfinishedBytes = 6000
        }
        self.limits = limits
        budget = min(2 << 20, max(300_000, limits.outgoingFrame << 10))
        let second = input.byte()
        let level = Int32(second % 10)
        limits.inflatedAtOnce = [512 << 10, 3000, 100, 20][Int(second >> 6)]
        engines = (0..<2).map { _ in
            Engine(version: version, limits: limits, compressionLevel: level, makeMessage: { Part() })
        }
    }

    // MARK: Steps

    func step(_ input: inout Input) {
        let operation = input.byte()
        let side = Int(operation >> 7)
        switch operation & 15 {
        case 0, 1: send(&input, side)
        case 2:
            guard let request = pick(&input, unanswered[side]) else { return }
            respond(&input, side, request)
        case 3, 4: cut(side, room: nil)
        case 5: cut(side, room: [0, 1, 63, 64, 65, 96, 128, 1000][input.below(8)])
        case 6, 7: deliver(side, &input)
        case 8:
            guard let record = pick(&input, records.filter { $0.side == side }) else { return }
            withdraw(record)
        case 9:
            guard let record = pick(&input, records.filter { $0.side == side && $0.message.kind == .request })
            else { return }
            abandon(record)
        case 10:
            guard let record = pick(&input, records.filter { $0.side == side }) else { return }
            if let source = record.source { source.patience += Int(input.byte() & 7) }
            engines[side].resume(record.message)
        case 11, 12:
            guard let part = pick(&input, open[side]) else { return }
            consume(side, part, input.word(), atOnce: operation & 0x40 != 0)
        case 13: engines[side].releaseIdleMemory()
        case 14:
            for _ in 0...input.byte() where !isOver { if !cut(side, room: nil) { break } }
        default:
            if operation & 0x70 == 0x70 { stop() } else { while canDeliver(side), !isOver { deliver(side, &input) } }
        }
        verify()
    }

    private func pick<T>(_ input: inout Input, _ from: [T]) -> T? {
        let index = Int(input.byte())
        return from.isEmpty ? nil : from[index % from.count]
    }

    private func makeRecord(_ input: inout Input, _ side: Int) -> Record {
        let shape = input.byte()
        var size = [0, Int(input.byte()), input.word(), input.word() * 4][Int(shape & 3)]
        size = min(size, budget)
        budget -= size
        let seed = UInt64(records.count) &* 7919 &+ 1
        let body = shape & 4 == 0 ? pattern(size, seed) : text(size, seed)
        var properties = [("id", "\(records.count)")]
        if shape & 8 != 0 { properties.append(("Profile", "application/json")) }
        if shape & 16 != 0 { properties.append(("Content-Type", String(repeating: "é", count: Int(input.byte())))) }
        if shape & 32 != 0, shape & 16 != 0 { properties.append(("", String(repeating: "x", count: input.word()))) }
        guard shape & 64 != 0 else { return Record(side: side, properties, body, held: size, nil) }
        let held = shape & 1 == 0 ? 0 : size / 2
        let source = Source(
            body[held...], piece: 1 + input.word(), isKnown: input.flag(), patience: Int(input.byte()),
            breaks: shape & 128 == 0 ? 0 : input.byte())
        return Record(side: side, properties, body, held: held, source)
    }

    private func send(_ input: inout Input, _ side: Int) {
        let record = makeRecord(&input, side)
        record.message.flags = MessageFlags(rawValue: input.byte() & 0x38)
        records.append(record)
        engines[side].send(record.message)
    }

    private func respond(_ input: inout Input, _ side: Int, _ request: Part) {
        unanswered[side].removeAll { $0 === request }
        let record = makeRecord(&input, side)
        let flags = input.byte()
        record.message.kind = flags & 1 == 0 ? .response : .error
        record.message.flags = MessageFlags(rawValue: flags & 0x18)
        record.message.number = request.number
        guard let answered = request.record else { finding("a request that nobody sent") }
        check(answered.response == nil, "answered twice")
        answered.response = record
        record.request = answered
        records.append(record)
        engines[side].send(record.message)
    }

    private func withdraw(_ record: Record) {
        let wasBegun = record.message.isStarted
        let isTaken = engines[record.side].withdraw(record.message)
        if isTaken {
            check(!wasBegun && record.state == .queued, "withdrawn although it was begun")
            record.state = .withdrawn
            askAgain(record)
        }
        // What was refused or withdrawn is not there; what waits in the queue is.
        let isThere = !wasBegun && record.state == .queued
        check(isTaken || !isThere, "not withdrawn although nothing of it was cut")
    }

    /// The answer was taken back or refused: the request wants another one.
    private func askAgain(_ record: Record) {
        guard let request = record.request, let part = request.received else { return }
        request.response = nil
        unanswered[record.side].append(part)
    }

    private func abandon(_ record: Record) {
        engines[record.side].abandon(record.message)
        record.isAbandoned = true
    }

    /// - Returns: false if there was nothing to cut.
    @discardableResult
    private func cut(_ side: Int, room: Int?) -> Bool {
        let engine = engines[side]
        let size = room ?? limits.outgoingFrame + 64
        let buffer = UnsafeMutableRawBufferPointer.allocate(byteCount: size, alignment: 1)
        defer { buffer.deallocate() }
        let hadOutput = engine.hasOutput
        let frame = engine.nextFrame(into: buffer)
        check(frame.count <= limits.outgoingFrame && frame.count <= size, "a frame of \(frame.count) bytes")
        check(hadOutput || (frame.count == 0 && frame.failure == nil && frame.error == nil), "output out of nothing")
        if frame.error != nil {
            let source = (frame.message as? Part)?.record?.source
            check(source?.isBroken == true, "\(String(describing: frame.error)) although no source has failed")
            stop()
            return false
        }
        if let failure = frame.failure {
            guard let record = (frame.message as? Part)?.record else { finding("a failure of nothing") }
            check(!record.message.isStarted, "refused although it was begun")
            check(
                failure == .bodySource ? record.source?.isBroken == true : !engine.propertiesFit(record.message),
                "refused without a reason: \(failure)")
            record.state = .refused
            askAgain(record)
            return true
        }
        guard frame.count > 0 else { return false }
        wire[side].append(Array(buffer.prefix(frame.count)))
        if let record = (frame.message as? Part)?.record {
            check(record.state == .queued, "sent although it was withdrawn or refused")
            check(frame.isLast == record.message.isFinished, "the last frame is marked wrongly")
            check(!frame.isLast || record.message.bodyBytesSent == UInt64(record.body.count), "not all was sent")
        }
        return true
    }

    private func consume(_ side: Int, _ part: Part, _ count: Int, atOnce: Bool) {
        guard part.isStreamed, let record = part.record else { return }
        let held = part.incomingBody.count
        let taken = min(count, held)
        record.collected += part.incomingBody.prefix(taken)
        if atOnce, part.taken == 0 {
            engines[side].consume(part, taken)
        } else {
            check(engines[side].take(part, taken) == taken, "not taken")
            part.taken += taken
            let done = atOnce ? part.taken : part.taken / 2
            engines[side].acknowledge(part, done)
            part.taken -= done
        }
        check(part.incomingBody.count == held - taken, "consumed wrongly")
    }

    // MARK: Delivery

    private func canDeliver(_ side: Int) -> Bool { !wire[side].isEmpty || engines[1 - side].isSuspended }

    /// Hands the oldest frame of `side` to the other one, or lets that go on with the one before.
    private func deliver(_ side: Int, _ input: inout Input) {
        let to = 1 - side
        let event: Event
        if engines[to].isSuspended {
            event = engines[to].continueFrame()
        } else {
            guard !wire[side].isEmpty else { return }
            event = withExact(wire[side].removeFirst()) { engines[to].receive($0) }
        }
        switch event {
        case .none, .acknowledged: break
        case .suspended: check(engines[to].isSuspended, "suspended without a rest")
        case .began(let message):
            if isOfEngine(message) { return }
            let part = identify(message, from: side)
            check(!part.hasBegun, "begins again")
            part.hasBegun = true
            part.isStreamed = input.flag()
            open[to].append(part)
            if part.record?.wantsReply == true, input.flag() { unanswered[to].append(part) }
        case .data(let message):
            guard let part = message as? Part else { finding("a message of the engine's own") }
            check(part.hasBegun && part.isStreamed, "data out of turn")
        case .complete(let message):
            guard let part = message as? Part else { finding("a message of the engine's own") }
            if isOfEngine(message) { return answered(part) }
            complete(part.hasBegun ? part : identify(message, from: side))
            open[to].removeAll { $0 === part }
            guard let record = part.record else { return }
            if record.wantsReply, record.response == nil, !unanswered[to].contains(where: { $0 === part }) {
                unanswered[to].append(part)
            }
        case .messageFailed(let message, let failure):
            guard let part = message as? Part else { finding("a message of the engine's own") }
            check(isTight, "\(failure) within the limits")
            check(failure == .tooLarge || failure == .memory || failure == .propertiesTooLarge, "\(failure)")
            open[to].removeAll { $0 === part }
            if let record = part.record {
                record.isFailed = true
                record.request?.isAnswered = true
                // The owner knows of it: an answer can still be given, and is due.
                if record.wantsReply, record.response == nil, !unanswered[to].contains(where: { $0 === part }) {
                    unanswered[to].append(part)
                }
            } else if let request = (part.request as? Part)?.record {
                check(!request.isAnswered && !request.isAbandoned, "an answer that nobody wants fails")
                request.isAnswered = true
                request.response?.isFailed = true
            }
        case .failed(let error): finding("\(error.text)")
        }
    }

    /// Whether it is an error response that the other engine itself has made.
    private func isOfEngine(_ message: Message) -> Bool {
        guard let part = message as? Part, part.record == nil, part.kind == .error,
            let request = (part.request as? Part)?.record, request.response == nil
        else { return false }
        check(isTight, "the engine itself answers \(String(decoding: part.incomingBody, as: UTF8.self))")
        check(!request.isDelivered && request.received == nil, "the engine answers for its owner")
        return true
    }

    /// Such an error response is complete.
    private func answered(_ part: Part) {
        guard let request = (part.request as? Part)?.record else { return }
        check(!request.isAnswered && !request.isAbandoned, "an answer that nobody wants")
        request.isAnswered = true
        request.isFailed = true
    }

    /// Finds out which of our messages this is.
    private func identify(_ message: Message, from side: Int) -> Part {
        guard let part = message as? Part else { finding("a message of the engine's own") }
        let record: Record
        if part.kind == .request {
            check(part.request == nil, "a request that answers")
            guard
                let id = Array("id".utf8).withUnsafeBytes({
                    part.property($0).map { String(decoding: $0, as: UTF8.self) }
                }),
                let index = Int(id), records.indices.contains(index)
            else { finding("a request without its id") }
            record = records[index]
        } else {
            guard let request = (part.request as? Part)?.record else { finding("a response to nothing") }
            check(!request.isAbandoned, "a response that nobody wants")
            guard let response = request.response else { finding("a response that nobody gave") }
            check(request.side != side, "a response to the other side")
            record = response
        }
        check(record.side == side && record.state == .queued, "a message that was not sent")
        check(record.received == nil, "a message comes again")
        check(record.message.kind == part.kind && record.message.number == part.number, "another kind or number")
        let compressed: MessageFlags = engines[side].state.pointee.compressionLevel > 0 ? .compressed : []
        let kept: MessageFlags = [.urgent, .noReply]
        check(part.flags.intersection(kept) == record.message.flags.intersection(kept), "other flags")
        check(part.flags.subtracting(kept).isSubset(of: compressed), "flags that were not sent")
        check(Array(part.incomingProperties) == record.encoded, "other properties")
        record.received = part
        part.record = record
        return part
    }

    private func complete(_ part: Part) {
        guard let record = part.record else { finding("a message that nobody sent") }
        check(!record.isDelivered && !record.isFailed, "a message ends again")
        check(part.isComplete && record.message.isFinished, "complete before its end")
        check(Array(part.incomingProperties) == record.encoded, "other properties at the end")
        check(record.collected + part.incomingBody == record.body, "another body")
        check(part.bodyBytesReceived == UInt64(record.body.count), "\(part.bodyBytesReceived) bytes are counted")
        record.isDelivered = true
        if let request = record.request {
            check(!request.isAnswered && !request.isAbandoned, "an answer that nobody wants")
            request.isAnswered = true
        }
    }

    // MARK: What must hold

    private func verify() {
        guard !isOver else { return }
        for engine in engines {
            let s = engine.state
            let incoming = s.pointee.incoming.all()
            var held = incoming.reduce(0) { $0 + ($1.state.pointee.isDiscarded ? 0 : $1.state.pointee.content.count) }
            if let first = engine.suspendedFirst { held += first.state.pointee.content.count }
            check(held == s.pointee.heldBytes, "\(held) bytes are held, \(s.pointee.heldBytes) counted")
            check(held <= limits.unfinishedBytes, "\(held) bytes are held")
            let abandoned = s.pointee.pending.all().count { $0.state.pointee.isAbandoned }
            check(abandoned == s.pointee.abandonedPending, "\(s.pointee.abandonedPending) abandoned are counted")
            let waited = incoming.count { $0.state.pointee.request != nil && !$0.state.pointee.isDiscarded }
            check(waited == s.pointee.partialResponses, "\(s.pointee.partialResponses) partial responses are counted")
            check(engine.pendingRequests >= 0 && engine.queuedMessages >= 0, "a negative count")
        }
        for (side, engine) in engines.enumerated() {
            let mine = records.filter { $0.side == side }
            let unsent = mine.count { $0.state == .queued && !$0.message.isFinished }
            // Beside them there may be errors that the engine itself sends.
            check(engine.queuedMessages >= unsent, "\(engine.queuedMessages) messages are queued, not \(unsent)")
            check(isTight || engine.queuedMessages == unsent, "\(engine.queuedMessages) are queued, not \(unsent)")
            let paused = mine.filter { $0.message.state.pointee.place == .paused }
            for record in paused {
                let m = record.message.state
                check(
                    m.pointee.wireSent - m.pointee.wireAcknowledged >= Engine.pauseThreshold, "paused without need")
            }
        }
    }

    /// Ends both engines in the middle of things.
    private func stop() {
        guard !isOver else { return }
        isOver = true
        for (side, engine) in engines.enumerated() {
            let left = engine.takeAll()
            var seen = Set<ObjectIdentifier>()
            for message in left.requests + left.outgoing + left.incoming {
                check(seen.insert(ObjectIdentifier(message)).inserted, "given back twice")
            }
            let requests = Set(left.requests.map(ObjectIdentifier.init))
            let outgoing = Set(left.outgoing.map(ObjectIdentifier.init))
            let incoming = Set(left.incoming.map(ObjectIdentifier.init))
            for record in records where record.side == side {
                let id = ObjectIdentifier(record.message)
                let isOpen = record.state == .queued && record.wantsReply && !record.isAnswered && !record.isAbandoned
                check(requests.contains(id) == isOpen, "a request \(isOpen ? "is lost" : "is given back again")")
                let isUnsent = record.state == .queued && !record.message.isFinished
                check(!isUnsent || isOpen || outgoing.contains(id), "a message is lost")
                check(isUnsent || !outgoing.contains(id), "a message is given back although it was sent")
            }
            for part in open[side] where !isFailedOrGone(part) {
                check(incoming.contains(ObjectIdentifier(part)), "a received message is lost")
            }
            check(engine.queuedBytes == 0 && engine.queuedMessages == 0 && engine.isIdle, "something is left")
        }
    }

    private func isFailedOrGone(_ part: Part) -> Bool {
        guard let record = part.record else { return true }
        return record.isFailed || record.isDelivered || record.request?.isAbandoned == true
    }

    /// Lets everything move that can, then looks at what became of each message.
    func end() {
        guard !isOver else { return }
        var none = Input(nil, 0)
        for record in records { record.source?.patience = .max }
        var turns = 0
        var isMoving = true
        while isMoving, !isOver {
            turns += 1
            check(turns < 10_000, "goes round for ever")
            isMoving = false
            for side in 0..<2 {
                for record in records where record.side == side { engines[side].resume(record.message) }
                while !isOver, cut(side, room: nil) { isMoving = true }
                while !isOver, canDeliver(side) {
                    deliver(side, &none)
                    isMoving = true
                }
                for part in open[1 - side] where !isFailedOrGone(part) {
                    if !part.incomingBody.isEmpty || part.taken > 0, part.isStreamed {
                        consume(1 - side, part, .max, atOnce: true)
                        isMoving = true
                    }
                }
                while let request = unanswered[1 - side].first {
                    respond(&none, 1 - side, request)
                    isMoving = true
                }
            }
            if !isOver { verify() }
        }
        guard !isOver else { return }
        for record in records { settle(record) }
        for engine in engines {
            check(engine.isIdle && !engine.hasOutput, "not idle at the end")
            check(engine.queuedBytes == 0, "\(engine.queuedBytes) bytes are queued at the end")
            check(engine.queuedMessages == 0 && engine.pendingRequests == 0, "messages are left at the end")
            check(engine.unfinishedIncoming == 0 && engine.state.pointee.heldBytes == 0, "memory is held at the end")
        }
    }

    /// Records of requests and responses hold each other.
    func untie() {
        for record in records {
            record.response = nil
            record.request = nil
        }
    }

    private func settle(_ record: Record) {
        guard record.state == .queued else {
            check(record.received == nil, "arrived although it was not sent")
            return
        }
        check(record.message.isFinished, "not sent")
        if let request = record.request {
            check(request.isAbandoned || record.isDelivered || record.isFailed, "a response is lost")
        } else {
            check(record.isDelivered || isTight, "a request is lost")
            let mustEnd = record.wantsReply && !record.isAbandoned
            check(!mustEnd || record.isAnswered, "a request is not answered")
            check(record.wantsReply || !record.isAnswered, "a request without reply is answered")
        }
    }
}

private func pattern(_ count: Int, _ seed: UInt64) -> [UInt8] {
    var x = seed | 1
    return [UInt8](unsafeUninitializedCapacity: count) { buffer, size in
        for index in 0..<count {
            x ^= x << 13
            x ^= x >> 7
            x ^= x << 17
            buffer[index] = UInt8(truncatingIfNeeded: x)
        }
        size = count
    }
}

private func text(_ count: Int, _ seed: UInt64) -> [UInt8] {
    let unit = Array("the same words of message \(seed) again; ".utf8)
    return [UInt8](unsafeUninitializedCapacity: count) { buffer, size in
        for index in 0..<count { buffer[index] = unit[index % unit.count] }
        size = count
    }
}
