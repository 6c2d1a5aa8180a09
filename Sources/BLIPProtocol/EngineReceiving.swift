#if canImport(Glibc)
    import Glibc
#elseif canImport(Musl)
    import Musl
#endif
import CZlib

/// The header of a received frame.
private struct Header {
    var number: UInt64
    /// 0 to 2, or what the engine does not know.
    var type: UInt8
    var flags: MessageFlags
    var moreComing: Bool
}

/// The frames of which message a frame belongs to.
private enum Destination {
    case nowhere
    case first(request: Message?)
    case continuing(Message)
}

extension Engine {
    /// Takes one frame as the transport delivered it; in version 1 with its 12-byte header.
    ///
    /// After `.suspended` not before `continueFrame` has led to something else.
    /// - Parameter frame: may be overwritten. Not kept.
    public func receive(_ frame: UnsafeMutableRawBufferPointer) -> Event {
        let s = state
        guard let base = frame.baseAddress, frame.count > 0 else { return .failed(ProtocolError(.frameEmpty)) }
        guard frame.count <= s.pointee.limits.incomingFrame else { return .failed(ProtocolError(.frameTooLarge)) }
        s.pointee.counters.framesReceived &+= 1
        var at = UnsafeRawPointer(base)
        var end = at + frame.count
        var header: Header
        if s.pointee.version == .v1 {
            switch readV1Header(UnsafeRawBufferPointer(frame)) {
            case .success(let read): header = read
            case .failure(let error): return .failed(error)
            }
            at += Self.v1HeaderSize
            if header.type > 2 { return .none }
        } else {
            guard let number = Varint.read(&at, end), let flags = Varint.read(&at, end) else {
                return .failed(ProtocolError(.frameHeader))
            }
            // Version 3: only the low 8 bits count, as in deployed peers.
            if flags > 0xFF, s.pointee.version == .v2 { return .failed(ProtocolError(.frameFlags)) }
            let bits = UInt8(truncatingIfNeeded: flags)
            header = Header(
                number: number, type: bits & 0x07, flags: MessageFlags(rawValue: bits & 0xB8),
                moreComing: bits & 0x40 != 0)
            if header.type > 2 {
                // Unknown types do not go through the codec, acknowledgements neither.
                guard header.type == 4 || header.type == 5 else { return .none }
                return receiveAcknowledgement(number, isOfResponse: header.type == 5, at, end)
            }
        }
        var isDeflated = false
        let wireSize = end - at
        if s.pointee.version == .v3 {
            header.flags.remove(.meta)
            guard wireSize >= 4 else { return .failed(ProtocolError(.frameChecksumMissing)) }
            end -= 4
            // A compressed frame without a body must not reach the inflater.
            isDeflated = header.flags.contains(.compressed) && end > at
            if !isDeflated {
                let checksum = Checksum.update(s.pointee.receiveChecksum, at, end - at)
                guard checksum == end.loadUnaligned(as: UInt32.self).bigEndian else {
                    return .failed(ProtocolError(.checksum))
                }
                s.pointee.receiveChecksum = checksum
                if !header.moreComing, s.pointee.incoming.count == 0,
                    let message = receiveWhole(header, at, end - at)
                {
                    return message
                }
            }
        }

        let destination: Destination
        if header.type == 0 {
            if header.number == s.pointee.nextIncomingNumber {
                destination = .first(request: nil)
            } else if header.number <= UInt64.max >> 1,
                let message = s.pointee.incoming[Self.key(header.number, isResponse: false)]
            {
                destination = .continuing(message)
            } else if header.number == 0 {
                return .failed(ProtocolError(.requestZero))
            } else {
                let isAhead = header.number > s.pointee.nextIncomingNumber
                return .failed(ProtocolError(isAhead ? .requestAhead : .requestFinished))
            }
        } else {
            guard header.number > 0, header.number < s.pointee.nextNumber else {
                return .failed(ProtocolError(.responseAhead))
            }
            if let message = s.pointee.incoming[Self.key(header.number, isResponse: true)] {
                destination = .continuing(message)
            } else if let request = s.pointee.pending[header.number] {
                destination = .first(request: request)
            } else {
                destination = .nowhere
            }
        }

        let message: Message
        switch destination {
        case .nowhere:
            // A response that nobody waits for still counts for checksum and inflater.
            guard isDeflated else { return .none }
            let part = FramePart(number: header.number, type: header.type, isLast: true, isFirst: false, wireSize: 0)
            return inflate(UnsafeMutableRawPointer(mutating: at), end - at, part, nil)
        case .continuing(let known):
            message = known
        case .first(let request):
            message = makeMessage()
            let m = message.state
            m.pointee.isIncoming = true
            m.pointee.kind = header.type == 0 ? .request : header.type == 1 ? .response : .error
            m.pointee.flags = header.flags
            m.pointee.number = header.number
            if let request {
                if request.state.pointee.isAbandoned {
                    m.pointee.isDiscarded = true
                } else {
                    m.pointee.request = request
                }
            }
            if header.moreComing, s.pointee.incoming.count >= s.pointee.limits.unfinishedMessages {
                return .failed(ProtocolError(.tooManyUnfinished))
            }
        }
        let m = message.state
        var isFirst = false
        if case .first = destination { isFirst = true }
        let contentBefore = m.pointee.content.count

        let part = FramePart(
            number: header.number, type: header.type, isLast: !header.moreComing, isFirst: isFirst, wireSize: wireSize)
        // The payload goes into the message.
        if isDeflated {
            return inflate(UnsafeMutableRawPointer(mutating: at), end - at, part, message)
        } else if !m.pointee.isDiscarded, m.pointee.failure == nil {
            if s.pointee.version != .v3, m.pointee.flags.contains(.compressed) {
                if absorbGzip(m, at, end - at) { return suspend(SuspendedFrame(part), message, contentBefore) }
            } else if !hasRoom(m, end - at, isWhole: isFirst && !header.moreComing) {
                // hasRoom has said why.
            } else if !m.pointee.content.append(at, end - at) {
                m.pointee.failure = .memory
            }
        }
        return settle(message, part, contentBefore)
    }

    /// All of a frame's payload is in the message.
    @inline(__always)
    private func settle(_ message: Message, _ part: FramePart, _ contentBefore: Int, hasGrown: Bool = false) -> Event {
        let s = state
        let m = message.state
        if part.isFirst {
            // Only now: a fatal error leaves the tables as they were.
            if part.type == 0 {
                s.pointee.nextIncomingNumber &+= 1
            } else {
                let request = s.pointee.pending.remove(part.number)
                if request?.state.pointee.isAbandoned == true { s.pointee.abandonedPending -= 1 }
            }
        }
        if !m.pointee.isDiscarded, m.pointee.failure == nil { absorb(m) }
        m.pointee.wireReceived &+= UInt64(truncatingIfNeeded: part.wireSize)
        if part.isLast {
            return finish(message, isWhole: part.isFirst, contentBefore)
        }
        return proceed(message, isFirst: part.isFirst, contentBefore, hasGrown: hasGrown)
    }

    /// The commonest case at once: a frame of version 3 that is a whole message, uncompressed, while no message is
    /// unfinished. Nil, with nothing done, for others.
    @inline(__always)
    private func receiveWhole(_ header: Header, _ from: UnsafeRawPointer, _ count: Int) -> Event? {
        let s = state
        var pending: Int?
        if header.type == 0 {
            guard header.number == s.pointee.nextIncomingNumber else { return nil }
        } else {
            pending = s.pointee.pending.find(header.number)
            guard let pending, let request = s.pointee.pending.reference(at: pending),
                !Outbox.state(request).pointee.isAbandoned
            else { return nil }
        }
        guard count <= s.pointee.limits.message, !s.pointee.isTight else { return nil }
        let message = makeMessage()
        let m = message.state
        m.pointee.isIncoming = true
        m.pointee.flags = header.flags
        m.pointee.number = header.number
        if let pending {
            m.pointee.kind = header.type == 1 ? .response : .error
            m.pointee.request = s.pointee.pending.remove(at: pending)
        } else {
            m.pointee.kind = .request
            s.pointee.nextIncomingNumber &+= 1
        }
        m.pointee.wireReceived = UInt64(truncatingIfNeeded: count &+ 4)
        if m.pointee.content.append(from, count) { absorb(m) } else { m.pointee.failure = .memory }
        if !m.pointee.hasProperties, m.pointee.failure == nil { m.pointee.failure = .properties }
        if let failure = m.pointee.failure { return fail(message, failure, isLast: true) }
        m.pointee.isComplete = true
        s.pointee.counters.messagesReceived &+= 1
        return .complete(message)
    }

    // MARK: After a frame went in

    /// The message's last frame is in.
    @inline(__always)
    private func finish(_ message: Message, isWhole: Bool, _ contentBefore: Int) -> Event {
        let s = state
        let m = message.state
        if !isWhole { leaveIncoming(message, contentBefore) }
        if m.pointee.isDiscarded { return finishDiscarded(message) }
        if m.pointee.failure == nil {
            if !m.pointee.hasProperties {
                m.pointee.failure = .properties
            } else if let gzip = m.pointee.gzipInput {
                if gzip.hasInput, !gzip.isAtEnd { m.pointee.failure = .body }
                m.pointee.gzipInput = nil
            }
        }
        if let failure = m.pointee.failure { return fail(message, failure, isLast: true) }
        m.pointee.isComplete = true
        s.pointee.counters.messagesReceived &+= 1
        return .complete(message)
    }

    @inline(never)
    private func finishDiscarded(_ message: Message) -> Event {
        let m = message.state
        if m.pointee.kind == .request, !m.pointee.hasBegun, let failure = m.pointee.failure {
            refuse(message, failure)
        }
        return .none
    }

    /// Takes an unfinished message out of the table; its held response may go now.
    @inline(never)
    private func leaveIncoming(_ message: Message, _ contentBefore: Int) {
        let s = state
        let m = message.state
        let isResponse = m.pointee.kind != .request
        s.pointee.incoming.remove(Self.key(m.pointee.number, isResponse: isResponse))
        if isResponse, m.pointee.request != nil { s.pointee.partialResponses -= 1 }
        s.pointee.heldBytes -= contentBefore
        if !m.pointee.marks.isEmpty { m.pointee.marks = [] }
        if let response = m.pointee.heldResponse {
            m.pointee.heldResponse = nil
            s.pointee.heldResponses -= 1
            s.pointee.outbox.insert(response)
        }
    }

    /// A frame that is not the message's last is in.
    @inline(never)
    private func proceed(_ message: Message, isFirst: Bool, _ contentBefore: Int, hasGrown: Bool) -> Event {
        let s = state
        let m = message.state
        if isFirst {
            let isResponse = m.pointee.kind != .request
            s.pointee.incoming.insert(Self.key(m.pointee.number, isResponse: isResponse), message)
            if isResponse, m.pointee.request != nil { s.pointee.partialResponses += 1 }
        } else {
            m.pointee.isContinued = true
        }
        s.pointee.heldBytes += m.pointee.content.count - contentBefore
        if let failure = m.pointee.failure, !m.pointee.isDiscarded {
            // The counts of the message live on in what takes its place.
            return fail(message, failure, isLast: false)
        }
        guard m.pointee.isStreamed, !m.pointee.isDiscarded else {
            m.pointee.wireConsumed = m.pointee.wireReceived
            let begins = m.pointee.hasProperties && !m.pointee.hasBegun && !m.pointee.isDiscarded
            if begins, m.pointee.content.count > m.pointee.bodyStart {
                // If it is going to be streamed, this part is not consumed yet.
                m.pointee.wireConsumed = 0
                m.pointee.marks.append(
                    AcknowledgementMark(content: m.pointee.bodyBytesReceived, wire: m.pointee.wireReceived))
            } else {
                acknowledgeIfDue(m)
            }
            if begins {
                m.pointee.hasBegun = true
                if m.pointee.wireReceived >= Self.pauseThreshold {
                    // There is one at a time: of an earlier one the owner has long decided.
                    settleUndecided()
                    s.pointee.undecided = message
                }
                return .began(message)
            }
            return .none
        }
        if m.pointee.bodyBytesAcknowledged == m.pointee.bodyBytesReceived {
            m.pointee.wireConsumed = m.pointee.wireReceived
            acknowledgeIfDue(m)
            return .none
        }
        // Small frames share a mark, so that marks stay few.
        if let last = m.pointee.marks.last, m.pointee.marks.count > 1, m.pointee.wireReceived - last.wire < 4096 {
            m.pointee.marks[m.pointee.marks.count - 1].content = m.pointee.bodyBytesReceived
            m.pointee.marks[m.pointee.marks.count - 1].wire = m.pointee.wireReceived
        } else {
            m.pointee.marks.append(
                AcknowledgementMark(content: m.pointee.bodyBytesReceived, wire: m.pointee.wireReceived))
        }
        return hasGrown || m.pointee.content.count > contentBefore ? .data(message) : .none
    }

    /// Queues an acknowledgement if what was consumed of an unfinished message has passed the next multiple.
    func acknowledgeIfDue(_ m: UnsafeMutablePointer<MessageState>) {
        let s = state
        let interval = Self.acknowledgementInterval
        guard s.pointee.version != .v1,
            m.pointee.wireConsumed / interval > m.pointee.wireReported / interval,
            // Not for a first frame, unless it is so large that the sender must be waiting already.
            m.pointee.isContinued || m.pointee.wireConsumed >= Self.pauseThreshold
        else { return }
        m.pointee.wireReported = m.pointee.wireConsumed
        let isOfResponse = m.pointee.kind != .request
        for index in s.pointee.acknowledgements.indices
        where s.pointee.acknowledgements[index].number == m.pointee.number
            && s.pointee.acknowledgements[index].isOfResponse == isOfResponse
        {
            s.pointee.acknowledgements[index].count = m.pointee.wireConsumed
            return
        }
        s.pointee.acknowledgements.append(
            Acknowledgement(number: m.pointee.number, isOfResponse: isOfResponse, count: m.pointee.wireConsumed))
    }

    // MARK: Failing

    /// One message cannot be completed.
    @inline(never)
    private func fail(_ message: Message, _ failure: MessageFailure, isLast: Bool) -> Event {
        let m = message.state
        m.pointee.failure = failure
        if !isLast { discard(message) }
        m.pointee.gzipInput = nil
        guard m.pointee.kind == .request, !m.pointee.hasBegun else {
            if m.pointee.kind != .request, m.pointee.request == nil { return .none }
            return .messageFailed(message, failure)
        }
        // The answer to an unfinished request has to wait for its end: what takes its place remembers the failure.
        if isLast { refuse(message, failure) }
        return .none
    }

    /// Puts something that only counts and drops in an unfinished message's place.
    func discard(_ message: Message) {
        let s = state
        let m = message.state
        let isResponse = m.pointee.kind != .request
        let sink = Message()
        let k = sink.state
        k.pointee.isIncoming = true
        k.pointee.kind = m.pointee.kind
        k.pointee.flags = m.pointee.flags
        k.pointee.number = m.pointee.number
        k.pointee.isDiscarded = true
        k.pointee.isContinued = m.pointee.isContinued
        k.pointee.hasBegun = m.pointee.hasBegun
        k.pointee.failure = m.pointee.failure
        k.pointee.wireReceived = m.pointee.wireReceived
        k.pointee.wireConsumed = m.pointee.wireReceived
        k.pointee.wireReported = m.pointee.wireReported
        k.pointee.heldResponse = m.pointee.heldResponse
        m.pointee.heldResponse = nil
        if isResponse, m.pointee.request != nil { s.pointee.partialResponses -= 1 }
        s.pointee.heldBytes -= m.pointee.content.count
        m.pointee.marks = []
        m.pointee.isDiscarded = true
        s.pointee.incoming.insert(Self.key(m.pointee.number, isResponse: isResponse), sink)
        acknowledgeIfDue(k)
    }

    /// Answers a request, all of which has arrived, with an error, if it wants an answer.
    private func refuse(_ request: Message, _ failure: MessageFailure) {
        let r = request.state
        guard !r.pointee.flags.contains(.noReply) else { return }
        let response = makeMessage()
        let m = response.state
        m.pointee.kind = .error
        m.pointee.number = r.pointee.number
        m.pointee.flags = r.pointee.flags.intersection(.urgent)
        let properties: StaticString =
            switch failure.code {
            case 413: "Error-Domain\0BLIP\0Error-Code\0413\0"
            case 503: "Error-Domain\0BLIP\0Error-Code\0503\0"
            default: "Error-Domain\0BLIP\0Error-Code\0400\0"
            }
        m.pointee.properties.append(properties.utf8Start, properties.utf8CodeUnitCount)
        m.pointee.body.append(failure.text.utf8Start, failure.text.utf8CodeUnitCount)
        send(response)
    }

    // MARK: Putting bytes into a message

    /// True if `count` more bytes of content are within the limits; sets `failure` otherwise.
    @inline(__always)
    private func hasRoom(_ m: UnsafeMutablePointer<MessageState>, _ count: Int, isWhole: Bool) -> Bool {
        let s = state
        if count > contentAllowance(m) {
            m.pointee.failure = .tooLarge
            return false
        }
        if !isWhole || s.pointee.isTight, count > s.pointee.heldLimit - s.pointee.heldBytes {
            m.pointee.failure = .memory
            return false
        }
        return true
    }

    /// How much more content the message limit allows. Properties count apart once their size is known.
    @inline(__always)
    private func contentAllowance(_ m: UnsafeMutablePointer<MessageState>) -> Int {
        guard !m.pointee.isStreamed else { return Int.max }
        let limits = state.pointee.limits
        let front = m.pointee.hasLength ? m.pointee.propertiesEnd : limits.properties &+ Varint.maximumSize
        return max(0, limits.message &+ front &- m.pointee.content.count)
    }

    /// The content has grown: find the properties, then count the body. Sets `failure`.
    @inline(__always)
    private func absorb(_ m: UnsafeMutablePointer<MessageState>) {
        if !m.pointee.hasProperties {
            guard absorbProperties(m) else { return }
        }
        let body = m.pointee.content.count &- m.pointee.bodyStart
        m.pointee.bodyBytesReceived = m.pointee.bodyBytesConsumed &+ UInt64(truncatingIfNeeded: body)
        if body > state.pointee.limits.message, !m.pointee.isStreamed { m.pointee.failure = .tooLarge }
    }

    /// - Returns: true if all properties are there and in order.
    @inline(__always)
    private func absorbProperties(_ m: UnsafeMutablePointer<MessageState>) -> Bool {
        let version = state.pointee.version
        guard let base = m.pointee.content.base else { return false }
        if !m.pointee.hasLength {
            let start = UnsafeRawPointer(base)
            let length: UInt64
            var at = start
            if version == .v1 {
                guard m.pointee.content.count >= 2 else { return false }
                length = UInt64(start.loadUnaligned(as: UInt16.self).bigEndian)
                at += 2
            } else {
                guard let read = Varint.read(&at, start + m.pointee.content.count) else {
                    // Cut off: more may come. But nothing valid is longer.
                    if m.pointee.content.count >= Varint.maximumSize { m.pointee.failure = .properties }
                    return false
                }
                length = read
            }
            guard length <= UInt64(state.pointee.limits.properties) else {
                m.pointee.failure = .propertiesTooLarge
                return false
            }
            m.pointee.hasLength = true
            m.pointee.propertiesStart = at - start
            m.pointee.propertiesEnd = (at - start) &+ Int(truncatingIfNeeded: length)
        }
        let end = m.pointee.propertiesEnd
        guard m.pointee.content.count >= end else { return false }
        let encoded = UnsafeRawBufferPointer(
            start: base + m.pointee.propertiesStart, count: end &- m.pointee.propertiesStart)
        guard PropertyRules.areValid(encoded) else {
            m.pointee.failure = .properties
            return false
        }
        if version != .v3, PropertyRules.hasAbbreviation(encoded) {
            m.pointee.properties.truncate(to: 0)
            guard PropertyRules.expand(encoded, version, into: &m.pointee.properties) else {
                m.pointee.failure = .properties
                return false
            }
            guard m.pointee.properties.count <= state.pointee.limits.properties else {
                m.pointee.failure = .propertiesTooLarge
                return false
            }
            m.pointee.isExpanded = true
        }
        m.pointee.bodyStart = end
        m.pointee.hasProperties = true
        return true
    }

    /// Puts a frame's payload into a message of version 1 or 2 whose body is compressed. Sets `failure`.
    ///
    /// - Returns: true if there is more than is done at once.
    @inline(never)
    private func absorbGzip(_ m: UnsafeMutablePointer<MessageState>, _ from: UnsafeRawPointer, _ count: Int) -> Bool {
        var at = from
        let end = from + count
        let contentBefore = m.pointee.content.count
        // Length field and properties come first, and plain.
        while !m.pointee.hasProperties, m.pointee.failure == nil, at < end || m.pointee.hasLength {
            let wanted = m.pointee.hasLength ? m.pointee.propertiesEnd - m.pointee.content.count : 1
            let part = min(wanted, end - at)
            guard hasRoom(m, part, isWhole: false) else { return false }
            guard m.pointee.content.append(at, part) else {
                m.pointee.failure = .memory
                return false
            }
            at += part
            absorb(m)
            if part == 0 { break }
        }
        guard m.pointee.hasProperties, m.pointee.failure == nil, at < end else { return false }
        let inflater: Inflater
        if let made = m.pointee.gzipInput {
            inflater = made
        } else {
            guard let new = Inflater(windowBits: 47) else {
                m.pointee.failure = .memory
                return false
            }
            inflater = new
            m.pointee.gzipInput = new
        }
        inflater.hasInput = true
        state.pointee.counters.decompressionInput &+= UInt64(end - at)
        let z = inflater.stream
        z.pointee.next_in = UnsafeMutableRawPointer(mutating: at).assumingMemoryBound(to: Bytef.self)
        z.pointee.avail_in = uInt(end - at)
        return inflateGzip(m, inflater, contentBefore)
    }

    /// Goes on with what the inflater was given. Sets `failure`.
    ///
    /// - Returns: true if there is more than is done at once.
    private func inflateGzip(
        _ m: UnsafeMutablePointer<MessageState>, _ inflater: Inflater, _ contentBefore: Int
    ) -> Bool {
        let z = inflater.stream
        var left = state.pointee.limits.inflatedAtOnce
        while !inflater.isAtEnd {
            guard left > 0 else { return true }
            let held = state.pointee.heldBytes + m.pointee.content.count - contentBefore
            // One more than the limits allow is asked for, to see whether there is more.
            let allowed = max(0, min(contentAllowance(m), state.pointee.heldLimit - held, Int.max - 1))
            let room = m.pointee.content.capacity - m.pointee.content.count
            if room == 0, !m.pointee.content.reserve(Self.inflatedGuess(Int(z.pointee.avail_in) * 4, allowed + 1)) {
                m.pointee.failure = .memory
                return false
            }
            let output = min(m.pointee.content.room.count, allowed + 1, left)
            guard let to = m.pointee.content.room.baseAddress, output > 0 else {
                m.pointee.failure = .memory
                return false
            }
            z.pointee.next_out = to.assumingMemoryBound(to: Bytef.self)
            z.pointee.avail_out = uInt(output)
            let status = CZlib.inflate(z, Z_NO_FLUSH)
            let produced = output - Int(z.pointee.avail_out)
            if produced > allowed {
                m.pointee.failure = contentAllowance(m) < produced ? .tooLarge : .memory
                return false
            }
            m.pointee.content.didAppend(produced)
            left -= produced
            state.pointee.counters.decompressionOutput &+= UInt64(produced)
            switch status {
            case Z_STREAM_END:
                inflater.isAtEnd = true
            case Z_OK, Z_BUF_ERROR:
                if z.pointee.avail_out > 0 { return false }
            default:
                m.pointee.failure = .body
                return false
            }
        }
        if z.pointee.avail_in > 0 { m.pointee.failure = .body }
        return false
    }

    /// How much memory to add for about so many bytes.
    private static func inflatedGuess(_ expected: Int, _ allowed: Int) -> Int {
        min(max(512, expected), allowed)
    }

    /// Inflates a frame of version 3, or its beginning, and checks it.
    ///
    /// - Parameters:
    ///   - from: what is compressed; the four bytes behind it are the checksum and get overwritten.
    ///   - message: where the content goes; nil: nowhere.
    @inline(never)
    private func inflate(
        _ from: UnsafeMutableRawPointer, _ count: Int, _ part: FramePart, _ message: Message?
    ) -> Event {
        let s = state
        var progress = InflationProgress(
            checksum: s.pointee.receiveChecksum,
            expected: (from + count).loadUnaligned(as: UInt32.self).bigEndian)
        // What every flush ends with is not transmitted.
        (from + count).storeBytes(of: UInt32(0x0000_FFFF).bigEndian, as: UInt32.self)
        let inflater: FrameInflater
        if let made = s.pointee.inflater {
            inflater = made
        } else {
            guard let new = FrameInflater() else { return .failed(ProtocolError(.memory)) }
            inflater = new
            s.pointee.inflater = new
        }
        inflater.give(from, count + 4)
        s.pointee.counters.decompressionInput &+= UInt64(count)
        let contentBefore = message?.state.pointee.content.count ?? 0
        switch inflate(inflater, &progress, into: message, contentBefore) {
        case .done: return message.map { settle($0, part, contentBefore) } ?? .none
        case .failed(let error): return .failed(error)
        case .unfinished: return suspend(SuspendedFrame(part, progress), message, contentBefore)
        }
    }

    /// Inflates what the inflater was given, as much as is done at once. What the message may not take is dropped, and
    /// its `failure` set.
    private func inflate(
        _ inflater: FrameInflater, _ progress: inout InflationProgress, into message: Message?, _ contentBefore: Int
    ) -> InflationOutcome {
        let s = state
        var target = message?.state
        if let m = target, m.pointee.isDiscarded || m.pointee.failure != nil { target = nil }
        var left = s.pointee.limits.inflatedAtOnce
        while let m = target {
            let held = s.pointee.heldBytes + m.pointee.content.count - contentBefore
            let allowed = min(contentAllowance(m), s.pointee.heldLimit - held)
            guard allowed > 0 else { break }
            guard left > 0 else { return .unfinished }
            if m.pointee.content.capacity == m.pointee.content.count {
                guard m.pointee.content.reserve(Self.inflatedGuess(inflater.expected, allowed)) else {
                    m.pointee.failure = .memory
                    break
                }
            }
            let output = min(m.pointee.content.room.count, allowed, left)
            guard let to = m.pointee.content.room.baseAddress, output > 0 else { break }
            guard let produced = inflater.inflate(to, output) else { return .failed(ProtocolError(.inflate)) }
            progress.checksum = Checksum.update(progress.checksum, to, produced)
            m.pointee.content.didAppend(produced)
            s.pointee.counters.decompressionOutput &+= UInt64(produced)
            if produced < output { return check(progress) }
            left -= produced
        }
        // No message, or it may take no more: what follows serves the history and the checksum only.
        let limit = 16 << 20
        return withUnsafeTemporaryAllocation(byteCount: 16384, alignment: 16) { scratch -> InflationOutcome in
            guard let to = scratch.baseAddress else { return .failed(ProtocolError(.memory)) }
            while left > 0 {
                let output = min(scratch.count, left)
                guard let produced = inflater.inflate(to, output) else { return .failed(ProtocolError(.inflate)) }
                progress.checksum = Checksum.update(progress.checksum, to, produced)
                progress.dropped += produced
                left -= produced
                s.pointee.counters.decompressionOutput &+= UInt64(produced)
                if produced > 0, let m = target, m.pointee.failure == nil {
                    m.pointee.failure = contentAllowance(m) > 0 ? .memory : .tooLarge
                }
                if progress.dropped > limit { return .failed(ProtocolError(.inflatedTooLarge)) }
                if produced < output { return check(progress) }
            }
            return .unfinished
        }
    }

    private func check(_ progress: InflationProgress) -> InflationOutcome {
        guard progress.checksum == progress.expected else { return .failed(ProtocolError(.checksum)) }
        state.pointee.receiveChecksum = progress.checksum
        return .done
    }

    // MARK: Frames that are much work

    /// Keeps what is left of a frame until the owner has served others.
    @inline(never)
    private func suspend(_ frame: SuspendedFrame, _ message: Message?, _ contentBefore: Int) -> Event {
        let s = state
        let input = frame.progress == nil ? message?.state.pointee.gzipInput?.stream : s.pointee.inflater?.stream
        guard let input, frame.keep(input) else { return .failed(ProtocolError(.memory)) }
        frame.message = message
        s.pointee.suspended = frame
        guard let m = message?.state, !m.pointee.isDiscarded else { return .suspended }
        let grown = m.pointee.content.count &- contentBefore
        s.pointee.heldBytes += grown
        if grown > 0 { frame.hasGrown = true }
        // The owner may look at and take what is there of a streamed message.
        if !frame.part.isFirst, m.pointee.failure == nil { absorb(m) }
        // It fails when the frame is at its end.
        frame.failure = m.pointee.failure
        m.pointee.failure = nil
        return .suspended
    }

    /// Goes on with a frame that was suspended, and may suspend it again. Harmless if there is none.
    public func continueFrame() -> Event {
        let s = state
        guard let frame = s.pointee.suspended else { return .none }
        s.pointee.suspended = nil
        var message = frame.message
        var contentBefore = 0
        if let first = message, frame.part.isFirst {
            let m = first.state
            s.pointee.heldBytes -= m.pointee.content.count
            if let failure = frame.failure { m.pointee.failure = failure }
            if let request = m.pointee.request, request.state.pointee.isAbandoned {
                m.pointee.isDiscarded = true
                m.pointee.request = nil
                m.pointee.content.removeAll()
            }
        } else if message != nil {
            // It may have been abandoned meanwhile, and something else be in its place.
            guard let known = s.pointee.incoming[Self.key(frame.part.number, isResponse: frame.part.type != 0)] else {
                return .none
            }
            if let failure = frame.failure, !known.state.pointee.isDiscarded { known.state.pointee.failure = failure }
            contentBefore = known.state.pointee.content.count
            message = known
        }
        if var progress = frame.progress {
            guard let inflater = s.pointee.inflater else { return .none }
            let outcome = inflate(inflater, &progress, into: message, contentBefore)
            frame.progress = progress
            switch outcome {
            case .done: break
            case .failed(let error): return .failed(error)
            case .unfinished: return suspend(frame, message, contentBefore)
            }
        } else if let m = message?.state, !m.pointee.isDiscarded, m.pointee.failure == nil,
            let inflater = m.pointee.gzipInput, inflateGzip(m, inflater, contentBefore)
        {
            return suspend(frame, message, contentBefore)
        }
        return message.map { settle($0, frame.part, contentBefore, hasGrown: frame.hasGrown) } ?? .none
    }

    // MARK: Acknowledgements

    private func receiveAcknowledgement(
        _ number: UInt64, isOfResponse: Bool, _ from: UnsafeRawPointer, _ end: UnsafeRawPointer
    ) -> Event {
        let s = state
        var at = from
        guard let count = Varint.read(&at, end) else { return .failed(ProtocolError(.acknowledgement)) }
        guard number <= UInt64.max >> 1,
            let message = s.pointee.underWay[Self.key(number, isResponse: isOfResponse)]
        else { return .none }
        let m = message.state
        guard count > m.pointee.wireAcknowledged, count <= m.pointee.wireSent else { return .none }
        m.pointee.wireAcknowledged = count
        if m.pointee.place == .paused, m.pointee.wireSent - count < Self.pauseThreshold {
            s.pointee.stalledMessages -= 1
            s.pointee.pausedMessages -= 1
            s.pointee.outbox.insert(message)
        }
        return .acknowledged
    }

    // MARK: Version 1

    /// The length of the frame that begins with these bytes of a version 1 stream.
    ///
    /// - Parameter header: what was received, as much as there is.
    public static func v1FrameLength(_ header: UnsafeRawBufferPointer) -> V1Length {
        guard let base = header.baseAddress, header.count > 0 else { return .needMore }
        // A wrong stream shows at its first bytes.
        for index in 0..<min(4, header.count)
        where header[index] != UInt8(truncatingIfNeeded: v1Magic >> (24 - 8 * UInt32(index))) {
            // That of version 1.0 differs in the last one.
            return .failed(ProtocolError(index == 3 && header[3] == 0x05 ? .frameOldMagic : .frameMagic))
        }
        guard header.count >= v1HeaderSize else { return .needMore }
        let length = Int(base.loadUnaligned(fromByteOffset: 10, as: UInt16.self).bigEndian)
        return length < v1HeaderSize ? .failed(ProtocolError(.frameLength)) : .length(length)
    }

    private func readV1Header(_ frame: UnsafeRawBufferPointer) -> Result<Header, ProtocolError> {
        switch Self.v1FrameLength(frame) {
        case .needMore: return .failure(ProtocolError(.frameLength))
        case .failed(let error): return .failure(error)
        case .length(let length):
            guard length == frame.count, let base = frame.baseAddress else {
                return .failure(ProtocolError(.frameLength))
            }
            let number = UInt64(base.loadUnaligned(fromByteOffset: 4, as: UInt32.self).bigEndian)
            let wire = base.loadUnaligned(fromByteOffset: 8, as: UInt16.self).bigEndian
            let flags = UInt8(truncatingIfNeeded: wire >> 1) & 0xB8
            return .success(
                Header(
                    number: number, type: UInt8(wire & 0x0F), flags: MessageFlags(rawValue: flags),
                    moreComing: wire & 0x80 != 0))
        }
    }
}
