import BLIPProtocol
import CBLIP
import Synchronization
import Transport
import WebSocketProtocol

extension Connection {
    public func stream(_ stream: Transport.Stream, didReceive bytes: UnsafeMutableRawBufferPointer) -> Int {
        guard !bytes.isEmpty else { return 0 }
        var consumed = 0
        if phase != .open, session == nil {
            guard phase == .upgrading else {
                if phase == .waitingForAccept { stream.pauseReading() }
                return phase == .waitingForAccept ? 0 : bytes.count
            }
            if isIncoming, bytes[0] == Self.streamMark { consumed = receiveFirstFrame(bytes) }
            // An interim answer may have the final one behind it.
            while phase == .upgrading, consumed < bytes.count, !isIncoming || bytes[consumed] != Self.streamMark {
                let taken = receiveHead(UnsafeMutableRawBufferPointer(rebasing: bytes[consumed...]))
                consumed += taken
                if taken == 0 { break }
            }
            if phase == .waitingForAccept { stream.pauseReading() }
        }
        guard consumed < bytes.count, let session = openSession() else { return consumed }
        // After a broken protocol nothing is worth reading.
        if session.isBroken { return bytes.count }
        limitMemory(session)
        consumed = session.link.receive(bytes, from: consumed, session, self)
        stream.worksInSteps = session.engine.isPacedByAcknowledgements
        // The pause may be older than the stream, or than its reading: what is left here comes again when it ends.
        if isReadingPaused || isFrameSuspended, consumed < bytes.count { stream.pauseReading() }
        // If there is output, it is published with that, later in this turn.
        if !stream.willFill { publishCounters(session, stream) }
        context.reclaim()
        return consumed
    }

    /// More of what the peer has sent may be taken.
    @inline(__always)
    var mayReceive: Bool { !isReadingPaused && !isFrameSuspended && (phase == .open || phase == .closing) }

    /// Bytes that compressed frames have become.
    var bytesInflated: UInt64 { session?.engine.bytesInflated ?? 0 }

    /// A few bytes on the wire can be much work: the other connections of the loop come before the rest of them.
    func letOthersFirst() {
        stream?.pauseReading()
        loop.post { [self] in if mayReceive { stream?.resumeReading() } }
    }

    /// So much comes out of a frame that the other connections of the loop come before the rest of it, and that before
    /// anything else from the peer.
    @inline(never)
    private func suspendFrame() {
        isFrameSuspended = true
        stream?.pauseReading()
        loop.post { [self] in continueFrame() }
    }

    private func continueFrame() {
        isFrameSuspended = false
        if phase == .open, let session, !session.isBroken {
            limitMemory(session)
            handle(session.engine.continueFrame(), session)
            if phase == .open { publishCounters(session) }
            context.reclaim()
        }
        if mayReceive { resumeReading() }
    }

    /// What one frame led to.
    @inline(__always)
    func handle(_ event: consuming BLIPProtocol.Event, _ session: Session) {
        switch consume event {
        case .none: break
        case .complete(let message): complete(Self.own(message), session)
        case .began(let message): begin(Self.own(message), session)
        case .data(let message): dataDidArrive(Self.own(message), status: BLIP_OK, session)
        case .acknowledged: break
        case .suspended: suspendFrame()
        case .messageFailed(let message, let failure): fail(Self.own(message), failure, session)
        case .failed(let error):
            break_(
                session, error.webSocketCode,
                Failure(
                    error.kind == .limit ? BLIP_ERROR_LIMIT : BLIP_ERROR_PROTOCOL, code: Int64(error.webSocketCode),
                    "\(error.text)"))
        }
        if session.engine.hasOutput { requestOutput() }
        if isDraining { checkDrained() }
    }

    /// The engine makes messages by `LoopContext.makeMessage` alone.
    @inline(__always)
    static func own(_ message: Message) -> BLIPMessage {
        unsafeDowncast(message, to: BLIPMessage.self)
    }

    // MARK: Whole messages

    @inline(__always)
    private func complete(_ message: BLIPMessage, _ session: Session) {
        if message.isBodyStreamed.load(ordering: .relaxed) {
            return dataDidArrive(message, status: BLIP_DATA_END, session)
        }
        message.isIncoming = true
        message.connection = self
        message.frozen.store(true, ordering: .relaxed)
        if hasHooks, !passesIn(message, session, isWhole: true) { return }
        if message.kind == .request {
            dispatch(message, session)
        } else if let answered = message.request {
            message.request = nil
            let request = Self.own(answered)
            respondToProgram(request, message, session)
            context.recycle(request)
        }
        context.recycle(message)
    }

    private func dispatch(_ request: BLIPMessage, _ session: Session) {
        if request.wantsReply { unanswered += 1 }
        if request.flags.contains(.meta) { return handleMeta(request) }
        guard let handler = handler(for: request) else {
            if request.wantsReply {
                _ = respond(to: request, domain: "BLIP", code: 404, text: "No handler for BLIP request")
            }
            return
        }
        if handler.flags & BLIP_HANDLER_STREAM != 0 {
            // As if the properties had come first: the handler is called, then the body follows.
            _ = makeStreamed(request)
            call(handler, request, session)
            dataDidArrive(request, status: BLIP_DATA_END, session)
        } else {
            request.isWhole.store(true, ordering: .releasing)
            call(handler, request, session)
        }
    }

    private func call(_ handler: RequestHandler, _ request: BLIPMessage, _ session: Session) {
        if configuration.queue == nil {
            call(handler, request)
        } else {
            deliver(Event(.request(handler), connection: self, message: request))
        }
    }

    /// Runs a handler and, if it neither answered nor deferred, answers for it. On the loop, or on the thread that
    /// dispatches the queue.
    @inline(__always)
    func call(_ handler: RequestHandler, _ request: BLIPMessage) {
        lend(request) { message in
            let status = handler.function?(handle, message, handler.context) ?? BLIP_OK
            guard request.wantsReply, request.reply.load(ordering: .relaxed) == ReplyState.open else { return }
            if status < 0 {
                _ = respond(to: request, domain: "BLIP", code: 501, text: "The request's handler failed")
            } else if !request.isBodyStreamed.load(ordering: .relaxed) {
                _ = respondEmpty(to: request)
            }
        }
    }

    @inline(__always)
    private func respondToProgram(_ request: BLIPMessage, _ response: BLIPMessage, _ session: Session) {
        countRoundTrip(of: request, response, session)
        if response.kind == .response, request.existingExtras?.isResponseStreamed == true {
            _ = makeStreamed(response)
            complete(request, response, BLIP_OK)
            // The body is here: the deadline, which `complete` leaves to it, is over.
            endTimer(of: request)
            dataDidArrive(response, status: BLIP_DATA_END, session)
        } else {
            response.isWhole.store(true, ordering: .releasing)
            complete(request, response, BLIP_OK)
        }
    }

    /// Tells the program how its request ended. Once.
    func complete(_ request: BLIPMessage, _ response: BLIPMessage?, _ status: blip_status) {
        guard !request.hasCompleted else { return }
        request.hasCompleted = true
        if let extras = request.existingExtras {
            // The deadline of a streamed response ends with its body.
            if response?.isBodyStreamed.load(ordering: .relaxed) != true { endTimer(of: request) }
            if extras.isBye { return byeDidComplete(response, status) }
            if let waiter = extras.requestWaiter {
                extras.requestWaiter = nil
                waiter.signal(status, response)
                return
            }
        }
        let completion = request.takeCompletion()
        if let queue = configuration.queue {
            guard completion.function != nil || completion.context != nil else {
                completion.release?(completion.context)
                return
            }
            let event = Event(
                .response(completion), status: status, connection: self, message: response, request: request)
            if queue.push(event, pausing: isReadingPaused ? nil : self) { pauseForQueue() }
            return
        }
        if let function = completion.function {
            lend(request) { request in
                lend(response) { function(handle, request, $0, status, completion.context) }
            }
        }
        completion.release?(completion.context)
    }

    /// The request's deadline is over or no longer matters.
    private func endTimer(of request: BLIPMessage) {
        guard let extras = request.existingExtras, let timer = extras.timer else { return }
        loop.cancel(timer)
        timer.request = nil
        extras.timer = nil
    }

    // MARK: Streamed messages

    /// A message's properties are there, its body is not.
    private func begin(_ message: BLIPMessage, _ session: Session) {
        message.isIncoming = true
        message.connection = self
        message.frozen.store(true, ordering: .relaxed)
        if message.kind == .request {
            guard !message.flags.contains(.meta), var handler = handler(for: message),
                handler.flags & BLIP_HANDLER_STREAM != 0
            else { return }
            if hasHooks {
                guard passesIn(message, session, isWhole: false) else { return }
                // An interceptor may have changed the profile.
                guard let other = self.handler(for: message), other.flags & BLIP_HANDLER_STREAM != 0 else { return }
                handler = other
            }
            if message.wantsReply { unanswered += 1 }
            _ = makeStreamed(message)
            call(handler, message, session)
        } else {
            // An error response is given whole.
            guard message.kind == .response, let request = message.request.map(Self.own),
                request.existingExtras?.isResponseStreamed == true
            else { return }
            countRoundTrip(of: request, message, session)
            if hasHooks, !passesIn(message, session, isWhole: false) { return }
            _ = makeStreamed(message)
            complete(request, message, BLIP_OK)
        }
        dataDidArrive(message, status: BLIP_OK, session)
    }

    func makeStreamed(_ message: BLIPMessage) -> IncomingBody {
        message.isStreamed = true
        message.pinProperties()
        message.isBodyStreamed.store(true, ordering: .releasing)
        return message.extras.makeIncoming()
    }

    /// Bytes of a streamed message have come, or its end, or its failure.
    func dataDidArrive(_ message: BLIPMessage, status: blip_status, _ session: Session?) {
        guard let extras = message.existingExtras, let body = extras.incoming else { return }
        message.publishedBytes.store(message.bodyBytesReceived, ordering: .releasing)
        if status != BLIP_OK, let request = message.request.map(Self.own) { endTimer(of: request) }
        // What is lost is told at once, because nothing is told after the connection's end.
        if status < 0 { body.setPaused(false) }
        var isTold = true
        if extras.isUnwanted {
            session?.engine.consume(message, message.incomingBody.count)
            body.append(UnsafeRawBufferPointer(start: nil, count: 0), status: status)
            if status == BLIP_DATA_END { message.isWhole.store(true, ordering: .releasing) }
        } else if configuration.queue == nil, let handler = extras.data, body.passesThrough {
            // Straight from the engine's buffer.
            offerDirectly(message, handler, status, body)
            if status == BLIP_DATA_END { message.isWhole.store(true, ordering: .releasing) }
        } else {
            move(message, to: body, status: status)
            if status == BLIP_DATA_END { message.isWhole.store(true, ordering: .releasing) }
            streamDidMove(message, body)
            isTold = !body.isPaused
        }
        if status != BLIP_OK {
            settleMemory(of: message, body)
            if isTold { bodyDidEnd(message, extras, status) }
        }
    }

    /// The program was told the end of a streamed body.
    private func bodyDidEnd(_ message: BLIPMessage, _ extras: MessageExtras, _ status: blip_status) {
        if status == BLIP_DATA_END { settleStreamed(message) }
        // Nothing follows: the callback's context is let go of.
        // Taken out first: its release function may look at the message.
        guard configuration.queue == nil else { return }
        let old = extras.data
        extras.data = nil
        _ = consume old
    }

    private func offerDirectly(
        _ message: BLIPMessage, _ handler: Handler<blip_data_fn>, _ status: blip_status, _ body: IncomingBody
    ) {
        let bytes = message.incomingBody
        guard !bytes.isEmpty || status != BLIP_OK else { return }
        var consumed = 0
        lend(message) { consumed = handler.function?($0, blip_slice(bytes), status, handler.context) ?? 0 }
        // More than there is (as a signed number maybe negative) means all.
        let taken = consumed < 0 ? bytes.count : min(consumed, bytes.count)
        session?.engine.consume(message, taken)
        if status != BLIP_OK {
            move(message, to: body, status: status)
        } else if taken == 0, bytes.count >= IncomingBody.patience, !body.isPaused {
            // It waits for more than the flow control allows: what it leaves is held and counts as consumed.
            move(message, to: body, status: status)
            if body.acknowledgeHeld() { postAcknowledgement(message) }
        }
    }

    /// Moves what the engine holds to where the program reads it; acknowledged when it has been read.
    private func move(_ message: BLIPMessage, to body: IncomingBody, status: blip_status) {
        let bytes = message.incomingBody
        let held = body.append(bytes, status: status)
        session?.record.streamedBytes += body.recount()
        guard !bytes.isEmpty, let session else { return }
        session.engine.take(message, bytes.count)
        if held < 0, phase == .open {
            return break_(
                session, 1011,
                Failure(BLIP_ERROR_RESOURCES, code: 1011, "There is no memory for the body of a streamed message."))
        }
        // A peer that keeps to the flow control has at most some 150 KB unacknowledged.
        guard held > configuration.limits.message, phase == .open else { return }
        break_(
            session, 1009,
            Failure(
                BLIP_ERROR_LIMIT, code: 1009, "A streamed message holds more unread bytes than the message limit."))
    }

    private func streamDidMove(_ message: BLIPMessage, _ body: IncomingBody) {
        let handler = message.existingExtras?.data
        if let queue = configuration.queue {
            guard handler != nil || message.existingExtras?.wantsDataEvents == true, body.shouldAnnounce() else {
                return
            }
            let event = Event(.data(handler), status: body.status, connection: self, message: message)
            if queue.push(event, pausing: isReadingPaused ? nil : self) { pauseForQueue() }
        } else if let handler {
            offer(message, to: handler)
        }
    }

    /// Offers what has been moved to a data callback. On the loop, or on the thread that dispatches the queue.
    func offer(_ message: BLIPMessage, to handler: Handler<blip_data_fn>) {
        guard let body = message.existingExtras?.incoming else { return }
        let result = body.offer { slice, status in
            var consumed = 0
            lend(message) { consumed = handler.function?($0, slice, status, handler.context) ?? 0 }
            return consumed
        }
        if result { postAcknowledgement(message) }
        // What came while the program looked is announced now, so that no two threads get bytes of one message at once.
        guard let queue = configuration.queue else { return }
        body.announcementDidEnd(keepingNews: true)
        if body.shouldAnnounce() {
            _ = queue.push(Event(.data(handler), status: body.status, connection: self, message: message))
        }
    }

    /// The program has consumed bytes of a streamed message; any thread.
    func postAcknowledgement(_ message: BLIPMessage) {
        perform { [self] in
            guard let body = message.existingExtras?.incoming else { return }
            let count = body.takeUnacknowledged()
            session?.record.streamedBytes += body.recount()
            guard count > 0, let engine = session?.engine, phase == .open else { return }
            engine.acknowledge(message, count)
            if engine.hasOutput { requestOutput() }
        }
    }

    /// The program wants a streamed body again that it has paused; any thread.
    func resumeReading(of message: BLIPMessage) {
        // Posted even from the loop: the callback never runs inside itself.
        loop.post { [self] in
            guard phase != .closed, let extras = message.existingExtras, let body = extras.incoming, !body.isPaused
            else { return }
            if body.status == BLIP_OK {
                dataDidArrive(message, status: BLIP_OK, session)
                requestOutput()
            } else {
                let status = body.status
                streamDidMove(message, body)
                bodyDidEnd(message, extras, status)
            }
        }
    }

    /// A data callback was set; what is already there is offered to it. Loop thread.
    func setData(_ message: BLIPMessage, _ handler: Handler<blip_data_fn>) {
        message.extras.data = handler.function == nil && configuration.queue == nil ? nil : handler
        message.extras.wantsDataEvents = true
        if let body = message.existingExtras?.incoming { streamDidMove(message, body) }
    }

    /// The program let go of a streamed message without a data callback: nobody can read it, so it is thrown away.
    func streamedHandleDidEnd(_ message: BLIPMessage) {
        perform { [self] in
            guard let extras = message.existingExtras, let body = extras.incoming, extras.data == nil,
                !extras.isUnwanted, message.hasNoHandle
            else { return }
            extras.isUnwanted = true
            body.drop()
            let count = body.takeUnacknowledged()
            session?.record.streamedBytes += body.recount()
            guard let engine = session?.engine, phase == .open else { return }
            engine.acknowledge(message, count)
            engine.consume(message, message.incomingBody.count)
            if engine.hasOutput { requestOutput() }
        }
    }

    /// The body of a streamed request is here: who did not answer and did not defer gets an empty response sent.
    private func settleStreamed(_ message: BLIPMessage) {
        guard message.kind == .request, message.wantsReply, configuration.queue == nil else { return }
        if message.reply.load(ordering: .relaxed) == ReplyState.open { _ = respondEmpty(to: message) }
    }

    private func fail(_ message: BLIPMessage, _ failure: MessageFailure, _ session: Session) {
        let status = Self.status(of: failure)
        if message.kind == .request, !message.isBodyStreamed.load(ordering: .relaxed) {
            guard message.wantsReply else { return }
            unanswered += 1
            _ = respond(to: message, domain: "BLIP", code: Int32(failure.code), text: "\(failure.text)")
        } else if message.isBodyStreamed.load(ordering: .relaxed) {
            dataDidArrive(message, status: status, session)
            if message.kind == .request, message.wantsReply,
                message.reply.load(ordering: .relaxed) != ReplyState.replied
            {
                _ = respond(to: message, domain: "BLIP", code: Int32(failure.code), text: "\(failure.text)")
            }
        } else if message.kind != .request, let request = message.request.map(Self.own) {
            message.request = nil
            complete(request, nil, status)
        }
    }

    static func status(of failure: MessageFailure) -> blip_status {
        switch failure {
        case .properties: BLIP_ERROR_PROPERTIES
        case .body, .bodySource: BLIP_ERROR_BODY
        case .propertiesTooLarge, .tooLarge, .memory: BLIP_ERROR_LIMIT
        }
    }

    @inline(__always)
    static var profileKey: UnsafeRawBufferPointer { ("Profile" as StaticString).bytes }
}
