/// The BLIP engine of one connection: frames in, events out; messages in, frames out.
///
/// *Function.* It splits messages into frames, chooses whose frame comes next, compresses, checks, acknowledges, joins
/// received frames to messages, and pairs responses with requests. It has no socket, clock, thread or lock and is
/// deterministic: the same calls give the same bytes.
///
/// *Order of calls.* After `receive`, a command, or room on the transport: call `nextFrame` while `hasOutput`. After
/// `Event.suspended`: `continueFrame`, at leisure, until it leads to something else, and only then `receive`. After a
/// fatal error (`Event.failed`, `OutgoingFrame.error`): `takeAll`, then nothing more. `makeMessage` and body sources
/// are called inside engine calls and must not call the engine.
///
/// *Versions* differ in header, checksum, compression and the encoding of properties; all else is common.
///
/// *Threads.* Confined to the thread of its connection: this is why it is marked `@unchecked Sendable`.
public final class Engine: @unchecked Sendable {
    /// A message is acknowledged whenever this many more of its bytes were received (BLIP §"Flow Control").
    static let acknowledgementInterval: UInt64 = 50_000
    /// A message with this many unacknowledged bytes is paused.
    static let pauseThreshold: UInt64 = 128_000
    /// Header of version 1.
    static let v1HeaderSize = 12
    static let v1Magic: UInt32 = 0x9B34_F206

    let state: UnsafeMutablePointer<EngineState>
    let makeMessage: () -> Message

    /// An engine for a connection on which nothing was sent or received yet.
    ///
    /// - Parameters:
    ///   - version: what both sides have agreed on.
    ///   - limits: out of range, they are brought into it.
    ///   - compressionLevel: 1 to 9; 0: no message is sent compressed, whatever its flags say.
    ///   - makeMessage: gives a fresh message for what is received, and for error responses of the engine itself.
    public init(
        version: ProtocolVersion, limits: Limits, compressionLevel: Int32, makeMessage: @escaping () -> Message
    ) {
        var limits = limits
        limits.outgoingFrame = max(64, limits.outgoingFrame)
        if version == .v1 { limits.outgoingFrame = min(65535, limits.outgoingFrame) }
        limits.smallFrame = max(64, min(limits.smallFrame, limits.outgoingFrame))
        // zlib counts with 32 bits.
        limits.incomingFrame = max(0, min(limits.incomingFrame, 1 << 30))
        limits.properties = max(0, min(limits.properties, 1 << 30))
        limits.message = max(0, min(limits.message, 1 << 60))
        limits.unfinishedBytes = max(0, min(limits.unfinishedBytes, 1 << 60))
        limits.inflatedAtOnce = max(1, min(limits.inflatedAtOnce, 1 << 30))
        state = .allocate(capacity: 1)
        state.initialize(
            to: EngineState(version: version, limits: limits, compressionLevel: max(0, min(compressionLevel, 9))))
        self.makeMessage = makeMessage
    }

    deinit {
        state.deinitialize(count: 1)
        state.deallocate()
    }

    /// The key of a message that is partly sent or received; not 0 for numbers up to 2^63.
    @inline(__always)
    static func key(_ number: UInt64, isResponse: Bool) -> UInt64 {
        number &<< 1 | (isResponse ? 1 : 0)
    }

    // MARK: Getters

    /// The version that the connection speaks.
    public var version: ProtocolVersion { state.pointee.version }

    /// Our requests that were begun and have no complete response yet; abandoned ones left out.
    public var pendingRequests: Int {
        state.pointee.pending.count - state.pointee.abandonedPending + state.pointee.partialResponses
    }

    /// Messages that are not fully cut into frames: queued, paused, waiting for their source or for their request's
    /// end.
    public var queuedMessages: Int {
        state.pointee.outbox.count + state.pointee.stalledMessages + state.pointee.heldResponses
    }

    /// Bytes of messages that are not cut into frames yet, before compression, as far as known.
    public var queuedBytes: UInt64 { state.pointee.queuedBytes }

    /// Messages of which a part was received.
    public var unfinishedIncoming: Int { state.pointee.incoming.count }

    /// One or two messages of several frames are under way, in both directions together: what flow control lets each of
    /// them have on the wire is so little that the sides wait for each other's steps.
    @inline(__always)
    public var isPacedByAcknowledgements: Bool {
        let count = state.pointee.incoming.count &+ state.pointee.underWay.count
        return count == 1 || count == 2
    }

    /// Messages that are under way and wait for acknowledgements.
    public var pausedMessages: Int { state.pointee.pausedMessages }

    /// A frame waits for `continueFrame`.
    public var isSuspended: Bool { state.pointee.suspended != nil }

    /// What unfinished incoming messages hold in memory, in bytes.
    public var heldBytes: Int { state.pointee.heldBytes }

    /// Little memory is left for incoming messages, so that whole ones are refused too.
    public var isTight: Bool { state.pointee.isTight }

    /// Limits what incoming messages may hold from now on, below `Limits.unfinishedBytes`, because the owner holds others.
    public func limitHeldBytes(to bytes: Int) {
        let s = state
        s.pointee.heldLimit = max(0, min(bytes, s.pointee.limits.unfinishedBytes))
        s.pointee.isTight = s.pointee.heldLimit &- s.pointee.heldBytes < s.pointee.limits.incomingFrame
    }

    /// What was done since the engine was made.
    public var counters: EngineCounters { state.pointee.counters }

    /// Bytes that compressed frames have become: work that the size on the wire does not tell.
    public var bytesInflated: UInt64 { state.pointee.counters.decompressionOutput }

    /// Bytes that have become compressed frames, before compression.
    public var bytesDeflated: UInt64 { state.pointee.counters.compressionInput }

    /// True if nothing is queued, under way or waited for, in either direction. Abandoned requests do not count once they
    /// are sent.
    public var isIdle: Bool {
        let s = state
        return s.pointee.outbox.count == 0 && s.pointee.underWay.count == 0
            && s.pointee.pending.count == s.pointee.abandonedPending
            && s.pointee.incoming.count == 0 && s.pointee.acknowledgements.isEmpty && s.pointee.suspended == nil
    }

    /// True if `nextFrame` has something to write, or to say.
    public var hasOutput: Bool {
        if state.pointee.undecided != nil { settleUndecided() }
        return state.pointee.outbox.count > 0 || !state.pointee.acknowledgements.isEmpty
    }

    /// The owner has seen the begin of a message whose first frame is huge: if it does not stream it, that frame counts
    /// as consumed.
    @inline(never)
    func settleUndecided() {
        guard let message = state.pointee.undecided else { return }
        state.pointee.undecided = nil
        let m = message.state
        guard !m.pointee.isStreamed, !m.pointee.isComplete, !m.pointee.isDiscarded else { return }
        m.pointee.wireConsumed = m.pointee.wireReceived
        acknowledgeIfDue(m)
    }

    /// True if the properties of an outgoing message are within the limit (`Limits.properties`; 65,535 encoded bytes in
    /// version 1). `nextFrame` refuses a message whose properties are not.
    public func propertiesFit(_ message: Message) -> Bool {
        guard message.state.pointee.properties.count <= state.pointee.limits.properties else { return false }
        guard version == .v1, message.state.pointee.properties.count > 0xFFFF else { return true }
        var encoded = Bytes()
        return PropertyRules.abbreviate(message.state.pointee.properties.bytes, .v1, into: &encoded)
            && encoded.count <= 0xFFFF
    }

    // MARK: Commands

    /// Queues a message: a request, or a response whose `kind` and `number` are set. The engine keeps a reference until
    /// its last frame is cut. A response to a request that has not arrived whole waits until it has, because deployed
    /// peers cannot take it before. Does nothing if the message was sent already.
    public func send(_ message: Message) {
        let s = message.state
        guard s.pointee.place == .none, !s.pointee.isStarted else { return }
        // Not written if it says so already: programs may be looking at the message.
        if s.pointee.isIncoming { s.pointee.isIncoming = false }
        countQueued(message)
        if s.pointee.kind != .request, state.pointee.incoming.count > 0,
            let request = state.pointee.incoming[Self.key(s.pointee.number, isResponse: false)],
            request.state.pointee.heldResponse == nil
        {
            s.pointee.place = .held
            request.state.pointee.heldResponse = message
            state.pointee.heldResponses += 1
            return
        }
        state.pointee.outbox.insert(message)
    }

    /// Adds what is known of the message's size to `queuedBytes`.
    @inline(__always)
    private func countQueued(_ message: Message) {
        let s = message.state
        var size = UInt64(s.pointee.properties.count &+ s.pointee.body.count)
        if !s.pointee.sources.isEmpty {
            for source in s.pointee.sources {
                let (sum, overflow) = size.addingReportingOverflow(source.remaining ?? 0)
                size = overflow ? UInt64.max / 4 : min(sum, UInt64.max / 4)
            }
        }
        s.pointee.queuedBytes = size
        state.pointee.queuedBytes &+= size
    }

    /// Takes `count` bytes off a message's share of `queuedBytes`.
    @inline(__always)
    func uncountQueued(_ s: UnsafeMutablePointer<MessageState>, _ count: UInt64) {
        let taken = min(count, s.pointee.queuedBytes)
        s.pointee.queuedBytes &-= taken
        state.pointee.queuedBytes &-= taken
    }

    /// The owner has consumed `count` bytes from the front of a streamed message's `incomingBody`. May make an
    /// acknowledgement due: check `hasOutput`.
    public func consume(_ message: Message, _ count: Int) {
        let taken = take(message, count)
        acknowledge(message, taken)
    }

    /// Drops `count` bytes from the front of a streamed message's `incomingBody`, which the owner has copied and not
    /// yet consumed: `acknowledge` follows when it has.
    ///
    /// - Returns: how many bytes were there to be dropped.
    @discardableResult
    public func take(_ message: Message, _ count: Int) -> Int {
        let s = message.state
        let held = s.pointee.content.count - s.pointee.bodyStart
        let taken = min(max(0, count), held)
        guard s.pointee.isIncoming, s.pointee.hasProperties, taken > 0, s.pointee.isStreamed || s.pointee.isComplete
        else { return 0 }
        s.pointee.bodyStart += taken
        s.pointee.bodyBytesConsumed &+= UInt64(taken)
        let before = s.pointee.content.count
        let front = s.pointee.propertiesEnd
        if s.pointee.bodyStart == s.pointee.content.count {
            s.pointee.content.truncate(to: front)
            s.pointee.bodyStart = front
        } else if s.pointee.bodyStart - front >= s.pointee.content.count - s.pointee.bodyStart {
            s.pointee.content.replace(
                at: front, s.pointee.bodyStart - front, with: UnsafeRawBufferPointer(start: nil, count: 0))
            s.pointee.bodyStart = front
        }
        if !s.pointee.isComplete, !s.pointee.isDiscarded, s.pointee.failure == nil {
            state.pointee.heldBytes -= before - s.pointee.content.count
        }
        return taken
    }

    /// The owner has consumed `count` bytes that it took from a streamed message. May make an acknowledgement due:
    /// check `hasOutput`.
    public func acknowledge(_ message: Message, _ count: Int) {
        let s = message.state
        let outstanding = s.pointee.bodyBytesConsumed &- s.pointee.bodyBytesAcknowledged
        s.pointee.bodyBytesAcknowledged &+= min(UInt64(max(0, count)), outstanding)
        guard s.pointee.isIncoming, s.pointee.isStreamed, !s.pointee.isComplete, !s.pointee.isDiscarded,
            s.pointee.failure == nil
        else { return }
        if s.pointee.bodyBytesAcknowledged == s.pointee.bodyBytesReceived {
            s.pointee.wireConsumed = s.pointee.wireReceived
            s.pointee.marks.removeAll(keepingCapacity: true)
        } else {
            var passed = 0
            while passed < s.pointee.marks.count, s.pointee.marks[passed].content <= s.pointee.bodyBytesAcknowledged {
                s.pointee.wireConsumed = s.pointee.marks[passed].wire
                passed += 1
            }
            if passed > 0 { s.pointee.marks.removeFirst(passed) }
        }
        acknowledgeIfDue(s)
    }

    /// A message whose body source answered `.wait` has bytes now. Harmless otherwise.
    public func resume(_ message: Message) {
        guard message.state.pointee.place == .waiting else { return }
        state.pointee.stalledMessages -= 1
        state.pointee.outbox.insert(message)
    }

    /// True if a message has been begun and waits for the peer's acknowledgements.
    public func isPaused(_ message: Message) -> Bool { message.state.pointee.place == .paused }

    /// Takes a message back.
    ///
    /// - Returns: true if no byte of it was cut: it has left the queue and will never be sent. False: it is under way,
    ///   sent, or was never queued.
    public func withdraw(_ message: Message) -> Bool {
        let s = message.state
        guard !s.pointee.isStarted else { return false }
        switch s.pointee.place {
        case .queued:
            state.pointee.outbox.remove(message)
        case .held:
            guard let request = state.pointee.incoming[Self.key(s.pointee.number, isResponse: false)],
                request.state.pointee.heldResponse === message
            else { return false }
            request.state.pointee.heldResponse = nil
            state.pointee.heldResponses -= 1
        case .none, .paused, .waiting:
            return false
        }
        s.pointee.place = .none
        uncountQueued(s, UInt64.max)
        return true
    }

    /// Nobody waits for the response of this request any more: the response is received, acknowledged and dropped, and
    /// `takeAll` leaves the request out of `requests`. What is queued of the request itself is still sent.
    public func abandon(_ request: Message) {
        let s = request.state
        guard s.pointee.kind == .request, !s.pointee.isAbandoned else { return }
        s.pointee.isAbandoned = true
        if s.pointee.isStarted, state.pointee.pending[s.pointee.number] === request {
            state.pointee.abandonedPending += 1
        }
        guard s.pointee.isStarted,
            let response = state.pointee.incoming[Self.key(s.pointee.number, isResponse: true)],
            response.state.pointee.request === request
        else { return }
        discard(response)
    }

    /// The response to one of our requests of which a part is here, if there is one.
    public func response(to request: Message) -> Message? {
        guard request.state.pointee.isStarted,
            let response = state.pointee.incoming[Self.key(request.state.pointee.number, isResponse: true)],
            response.state.pointee.request === request || response.state.pointee.hasBegun,
            !response.state.pointee.isDiscarded
        else { return nil }
        return response
    }

    // MARK: Ending

    /// Ends the engine and gives back every message that is not done.
    ///
    /// - Returns:
    ///   - requests: ours without a complete response, abandoned ones left out: queued, under way, waiting for the
    ///     response, or with a part of it here.
    ///   - outgoing: responses, requests without reply, and requests that are abandoned or have their response, as far
    ///     as they were not fully cut.
    ///   - incoming: requests and responses that have begun (`Event.began`) and are incomplete.
    public func takeAll() -> (requests: [Message], outgoing: [Message], incoming: [Message]) {
        let s = state
        var requests: [Message] = []
        var outgoing: [Message] = []
        var incoming: [Message] = []
        for message in s.pointee.pending.all() where !message.state.pointee.isAbandoned { requests.append(message) }
        var unsent = s.pointee.outbox.all().filter { !$0.state.pointee.isStarted }
        for message in s.pointee.incoming.all() {
            let m = message.state
            if let request = m.pointee.request { requests.append(request) }
            if let held = m.pointee.heldResponse {
                m.pointee.heldResponse = nil
                unsent.append(held)
            }
            if m.pointee.hasBegun, !m.pointee.isDiscarded { incoming.append(message) }
        }
        let known = Set(requests.map(ObjectIdentifier.init))
        while s.pointee.outbox.popFirst() != nil {}
        for message in unsent + s.pointee.underWay.all() where !known.contains(ObjectIdentifier(message)) {
            let m = message.state
            m.pointee.place = .none
            let wantsReply = m.pointee.kind == .request && !m.pointee.flags.contains(.noReply)
            if wantsReply, !m.pointee.isAbandoned, !m.pointee.isStarted {
                requests.append(message)
            } else {
                outgoing.append(message)
            }
        }
        for message in requests { message.state.pointee.place = .none }
        s.pointee.pending.removeAll()
        s.pointee.abandonedPending = 0
        s.pointee.incoming.removeAll()
        s.pointee.underWay.removeAll()
        s.pointee.acknowledgements = []
        s.pointee.undecided = nil
        s.pointee.suspended = nil
        s.pointee.queuedBytes = 0
        s.pointee.heldBytes = 0
        s.pointee.partialResponses = 0
        s.pointee.heldResponses = 0
        s.pointee.stalledMessages = 0
        s.pointee.pausedMessages = 0
        releaseIdleMemory()
        return (requests, outgoing, incoming)
    }

    /// Messages of which a part, but not the whole was sent or received: at most `limit` in each direction.
    public func unfinishedMessages(limit: Int) -> [(message: Message, isIncoming: Bool)] {
        guard limit > 0 else { return [] }
        let s = state
        return s.pointee.underWay.all().prefix(limit).map { ($0, false) }
            + s.pointee.incoming.all().prefix(limit).map { ($0, true) }
    }

    /// Frees what can be made anew: the compressor of version 3, whose history the peer does not depend on, spare
    /// buffers and empty tables. Costs a little compression if the connection goes on.
    public func releaseIdleMemory() {
        let s = state
        s.pointee.deflater = nil
        s.pointee.spareGzipDeflater = nil
        if s.pointee.pending.count == 0 { s.pointee.pending.removeAll() }
        if s.pointee.underWay.count == 0 { s.pointee.underWay.removeAll() }
        if s.pointee.incoming.count == 0 { s.pointee.incoming.removeAll() }
        if s.pointee.acknowledgements.isEmpty { s.pointee.acknowledgements = [] }
    }
}
