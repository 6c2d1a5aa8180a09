import CZlib

@testable import BLIPProtocol

/// An engine of each version, fed what a hostile peer could send. Checksums are made right unless the input says
/// otherwise, so that what lies behind them is reached. Checks the order of events and that memory follows what came,
/// not what was claimed.
@c(LLVMFuzzerTestOneInput)
public func fuzz(_ data: UnsafePointer<UInt8>?, _ size: Int) -> Int32 {
    var input = Input(data, size)
    let run = Run(&input)
    while !input.isEmpty, !run.hasFailed { run.step(&input) }
    run.end()
    return 0
}

/// A message that remembers what it went through.
private final class Tracked: Message, @unchecked Sendable {
    var hasBegun = false
    var hasEnded = false
    var answers = 0
    var isOurs = false
    var isGivenUp = false
}

private final class Run {
    let engine: Engine
    let version: ProtocolVersion
    let limits: Limits
    let peer = Peer()
    var hasFailed = false
    var ours: [Tracked] = []
    var open: [Tracked] = []

    init(_ input: inout Input) {
        let shape = input.byte()
        version = [.v1, .v2, .v3, .v3][Int(shape & 3)]
        var limits = Limits()
        switch shape >> 2 & 3 {
        case 0: break
        case 1:
            limits.message = 2000
            limits.unfinishedBytes = 5000
            limits.unfinishedMessages = 3
            limits.properties = 200
        case 2:
            limits.message = 100_000
            limits.unfinishedBytes = 150_000
            limits.incomingFrame = 70_000
        default:
            limits.message = 0
            limits.properties = 0
            limits.unfinishedBytes = 64
        }
        limits.outgoingFrame = 64 << Int(shape >> 4 & 7)
        if shape & 0x10 != 0 { limits.inflatedAtOnce = 1000 }
        self.limits = limits
        engine = Engine(
            version: version, limits: limits, compressionLevel: Int32(shape >> 7) * 6, makeMessage: { Tracked() })
    }

    // MARK: Steps

    func step(_ input: inout Input) {
        let operation = input.byte()
        switch operation & 15 {
        case 0: receive(input.take(input.word() & 0x3FF))
        case 1:
            // An acknowledgement.
            let body = input.take(Int(input.byte() & 15))
            receive(header(UInt64(input.byte() & 7), 4 | input.byte() & 0xF9) + body)
        case 2, 3: sendRequest(&input)
        case 4: owner(&input)
        case 5: drain()
        default: frame(operation, &input)
        }
        verify()
    }

    private func frame(_ operation: UInt8, _ input: inout Input) {
        // Mostly the numbers that mean something now.
        let numbers: [UInt64] = [
            engine.state.pointee.nextIncomingNumber, engine.state.pointee.nextIncomingNumber &- 1, 1, 2,
            engine.state.pointee.nextNumber &- 1, UInt64(input.byte()), UInt64.max, UInt64.max >> 1,
        ]
        let number = numbers[Int(operation >> 4 & 7)]
        var flags = input.byte()
        var payload = input.take(Int(input.byte()))
        let kind = operation & 15
        if kind >= 12 { payload += [UInt8](repeating: flags, count: input.word()) }
        if kind == 14 { payload += [UInt8](repeating: 0x20, count: input.word() << 5) }
        if kind == 6 { flags &= 0x40 }
        guard version == .v3, flags & 7 < 3 else {
            if version != .v3, flags & 8 != 0, kind >= 9 { payload = peer.gzip(payload) }
            return receive(header(number, flags, payload.count) + payload)
        }
        var wire = payload
        let checksum: UInt32
        if flags & 8 != 0, !payload.isEmpty {
            if kind >= 9 { wire = peer.deflate(payload) }
            checksum = wire.isEmpty ? peer.checksum : peer.inflated(wire)
        } else {
            checksum = Checksum.update(peer.checksum, payload)
        }
        peer.checksum = operation & 0x80 != 0 && kind == 7 ? ~checksum : checksum
        receive(
            header(number, flags) + wire
                + [24, 16, 8, 0].map { UInt8(truncatingIfNeeded: peer.checksum >> UInt32($0)) })
    }

    private func header(_ number: UInt64, _ flags: UInt8, _ payload: Int = 0) -> [UInt8] {
        guard version == .v1 else { return varint(number) + varint(UInt64(flags)) }
        let wire = UInt16(flags & 7) | UInt16(flags & 0xF8) << 1
        let size = UInt16(truncatingIfNeeded: payload + 12)
        let low = UInt32(truncatingIfNeeded: number)
        return [0x9B, 0x34, 0xF2, 0x06] + [24, 16, 8, 0].map { UInt8(truncatingIfNeeded: low >> UInt32($0)) }
            + [UInt8(wire >> 8), UInt8(wire & 0xFF), UInt8(size >> 8), UInt8(size & 0xFF)]
    }

    private func sendRequest(_ input: inout Input) {
        let message = Tracked()
        message.isOurs = true
        message.flags = MessageFlags(rawValue: input.byte() & 0x38)
        let size = input.word()
        [UInt8](repeating: 0x61, count: size).withUnsafeBytes { _ = message.body.append($0) }
        ours.append(message)
        engine.send(message)
    }

    private func owner(_ input: inout Input) {
        let which = Int(input.byte())
        let count = input.word() * 2
        switch which & 7 {
        case 0:
            if !ours.isEmpty {
                let message = ours[(which >> 3) % ours.count]
                engine.abandon(message)
                message.isGivenUp = true
            }
        case 1: engine.releaseIdleMemory()
        case 2: peer.reset()
        default:
            guard !open.isEmpty else { return }
            let message = open[(which >> 3) % open.count]
            if which & 1 == 0 {
                engine.consume(message, count)
            } else {
                engine.acknowledge(message, engine.take(message, count))
            }
        }
    }

    private func drain() {
        let size = limits.outgoingFrame + 64
        let buffer = UnsafeMutableRawBufferPointer.allocate(byteCount: size, alignment: 1)
        defer { buffer.deallocate() }
        while engine.hasOutput {
            let frame = engine.nextFrame(into: buffer)
            check(frame.error == nil, "\(String(describing: frame.error))")
            check(frame.count <= max(64, limits.outgoingFrame), "a frame of \(frame.count) bytes")
            guard frame.count > 0 else {
                if frame.failure == nil { return }
                if let message = frame.message as? Tracked {
                    // Properties above the limit: here only those of the engine's own errors.
                    check(frame.failure == .propertiesTooLarge, "\(String(describing: frame.failure))")
                    message.isGivenUp = true
                }
                continue
            }
        }
    }

    // MARK: Events

    private func receive(_ frame: [UInt8]) {
        if engine.isSuspended { goOn() }
        handle(withExact(frame) { engine.receive($0) })
    }

    /// To the end of a frame that was suspended.
    private func goOn() {
        while engine.isSuspended, !hasFailed { handle(engine.continueFrame()) }
    }

    private func handle(_ event: Event) {
        switch event {
        case .none, .acknowledged, .suspended: break
        case .began(let message):
            let message = tracked(message)
            check(!message.hasBegun && !message.hasEnded, "begins again")
            check(!message.isComplete, "begins complete")
            message.hasBegun = true
            message.isStreamed = message.number % 2 == 0 || message.incomingBody.count % 2 == 0
            open.append(message)
            pair(message)
        case .data(let message):
            let message = tracked(message)
            check(message.hasBegun && message.isStreamed && !message.hasEnded, "data out of turn")
        case .complete(let message):
            let message = tracked(message)
            check(!message.hasEnded && message.isComplete, "ends again")
            message.hasEnded = true
            if !message.hasBegun { pair(message) }
            check(message.incomingProperties.count <= limits.properties, "properties above the limit")
            check(
                message.isStreamed || message.incomingBody.count <= limits.message,
                "a body of \(message.incomingBody.count) bytes")
            check(PropertyRules.areValid(message.incomingProperties), "bad properties are let in")
            // What is left can be consumed afterwards.
            engine.consume(message, .max)
            check(message.incomingBody.isEmpty, "a body that cannot be consumed")
            if message.kind == .request, !message.flags.contains(.noReply) { respond(message) }
            open.removeAll { $0 === message }
        case .messageFailed(let message, _):
            let message = tracked(message)
            check(!message.hasEnded && !message.isComplete, "fails after its end")
            check(message.kind != .request || message.hasBegun, "a request that nobody knows fails")
            message.hasEnded = true
            if !message.hasBegun { pair(message) }
            open.removeAll { $0 === message }
        case .failed(let error):
            check([1002, 1007, 1009, 1011].contains(error.webSocketCode), "code \(error.webSocketCode)")
            check(error.text.utf8CodeUnitCount > 0, "no text")
            hasFailed = true
        }
    }

    private func tracked(_ message: Message) -> Tracked {
        guard let message = message as? Tracked else { finding("a message of the engine's own") }
        check(!message.isOurs, "a message of ours comes back")
        return message
    }

    /// A response belongs to one request of ours, which has had none.
    private func pair(_ message: Tracked) {
        guard message.kind != .request else {
            check(message.request == nil, "a request that answers")
            return
        }
        guard let request = message.request as? Tracked else { finding("a response to nothing") }
        check(request.isOurs && request.number == message.number, "a response to another")
        check(!request.flags.contains(.noReply) && !request.isGivenUp, "a response that nobody wants")
        request.answers += 1
        check(request.answers == 1, "answered twice")
    }

    private func respond(_ request: Tracked) {
        let response = Tracked()
        response.isOurs = true
        response.kind = request.number % 3 == 0 ? .error : .response
        response.number = request.number
        [UInt8](repeating: 0x62, count: Int(request.number % 300)).withUnsafeBytes { _ = response.body.append($0) }
        engine.send(response)
    }

    // MARK: What must hold

    private func verify() {
        open.removeAll { ($0.request as? Tracked)?.isGivenUp == true }
        let s = engine.state
        let incoming = s.pointee.incoming.all()
        if !hasFailed {
            var held = incoming.reduce(0) { $0 + ($1.state.pointee.isDiscarded ? 0 : $1.state.pointee.content.count) }
            if let first = engine.suspendedFirst { held += first.state.pointee.content.count }
            check(held == s.pointee.heldBytes, "\(held) bytes are held, \(s.pointee.heldBytes) counted")
            check(held <= limits.unfinishedBytes, "\(held) bytes are held")
            check(incoming.count <= limits.unfinishedMessages, "\(incoming.count) messages are unfinished")
            let waited = incoming.count { $0.state.pointee.request != nil && !$0.state.pointee.isDiscarded }
            check(waited == s.pointee.partialResponses, "\(s.pointee.partialResponses) partial responses are counted")
            let heldBack = incoming.count { $0.state.pointee.heldResponse != nil }
            check(heldBack == s.pointee.heldResponses, "\(s.pointee.heldResponses) held responses are counted")
        }
        let abandoned = s.pointee.pending.all().count { $0.state.pointee.isAbandoned }
        check(abandoned == s.pointee.abandonedPending, "\(s.pointee.abandonedPending) abandoned requests are counted")
        check(engine.pendingRequests >= 0 && engine.queuedMessages >= 0, "a negative count")
        for message in incoming where message !== s.pointee.suspended?.message {
            let m = message.state
            let came = 4 * Int(m.pointee.wireReceived) + Int(m.pointee.bodyBytesReceived) + m.pointee.content.count
            check(
                m.pointee.content.capacity <= 2 * came + 1024,
                "\(m.pointee.content.capacity) bytes of memory for \(came)")
            check(m.pointee.marks.count <= Int(m.pointee.wireReceived / 4096) + 3, "\(m.pointee.marks.count) marks")
            check(m.pointee.wireConsumed <= m.pointee.wireReceived, "more consumed than received")
            check(m.pointee.wireReported <= m.pointee.wireReceived, "more acknowledged than received")
            check(m.pointee.bodyBytesAcknowledged <= m.pointee.bodyBytesReceived, "more acknowledged than received")
            check(m.pointee.bodyStart <= m.pointee.content.count || !m.pointee.hasProperties, "begin behind the end")
        }
    }

    func end() {
        goOn()
        if !hasFailed { drain() }
        let left = engine.takeAll()
        var seen = Set<ObjectIdentifier>()
        for message in left.requests + left.outgoing + left.incoming {
            check(seen.insert(ObjectIdentifier(message)).inserted, "given back twice")
        }
        for message in left.requests {
            guard let message = message as? Tracked else { continue }
            check(message.isOurs && !message.isGivenUp, "given back although nobody waits")
        }
        for message in left.incoming {
            guard let message = message as? Tracked else { finding("a message of the engine's own") }
            check(message.hasBegun && !message.hasEnded, "given back although it has ended")
        }
        check(
            engine.queuedBytes == 0 && engine.queuedMessages == 0 && engine.unfinishedIncoming == 0, "something is left"
        )
        check(engine.isIdle && !engine.hasOutput, "not idle")
    }
}

/// The peer's side of the codec of version 3, and gzip.
private final class Peer {
    var checksum: UInt32 = 0
    private var output: ZlibPeer?
    private var input: Inflater?

    /// A peer may drop its history at any time.
    func reset() { output = nil }

    func deflate(_ bytes: [UInt8]) -> [UInt8] {
        let peer = output ?? ZlibPeer(level: 6)
        output = peer
        var result = peer.frame(bytes)
        if result.suffix(4) == [0, 0, 0xFF, 0xFF] { result.removeLast(4) }
        return result
    }

    func gzip(_ bytes: [UInt8]) -> [UInt8] { ZlibPeer(level: 6, windowBits: 31).frame(bytes, end: Z_FINISH) }

    /// The checksum after the content of a compressed frame, whatever it holds.
    func inflated(_ bytes: [UInt8]) -> UInt32 {
        if input == nil { input = Inflater(windowBits: -15) }
        guard let z = input?.stream else { finding("no decompressor") }
        var wire = bytes + [0, 0, 0xFF, 0xFF]
        var result = checksum
        wire.withUnsafeMutableBufferPointer { from in
            z.pointee.next_in = from.baseAddress
            z.pointee.avail_in = uInt(from.count)
            var output = [UInt8](repeating: 0, count: 65536)
            var total = 0
            while total < 20 << 20 {
                let (size, status) = output.withUnsafeMutableBufferPointer { to -> (Int, Int32) in
                    z.pointee.next_out = to.baseAddress
                    z.pointee.avail_out = uInt(to.count)
                    let status = CZlib.inflate(z, Z_SYNC_FLUSH)
                    return (to.count - Int(z.pointee.avail_out), status)
                }
                result = Checksum.update(result, Array(output.prefix(size)))
                total += size
                if size < output.count || status != Z_OK { break }
            }
        }
        return result
    }
}

extension Checksum {
    fileprivate static func update(_ checksum: UInt32, _ bytes: [UInt8]) -> UInt32 {
        bytes.withUnsafeBytes { raw in raw.baseAddress.map { update(checksum, $0, raw.count) } ?? checksum }
    }
}

private func varint(_ value: UInt64) -> [UInt8] {
    var bytes = [UInt8](repeating: 0, count: Varint.maximumSize)
    let size = bytes.withUnsafeMutableBytes { raw in raw.baseAddress.map { Varint.write(value, to: $0) } ?? 0 }
    return Array(bytes.prefix(size))
}
