import BLIPProtocol
import CBLIP
import Glibc
import Synchronization
import Transport
import WebSocketProtocol

extension Connection {
    // MARK: From any thread

    /// Accepts a request for sending. On success it is frozen, and its completion will be told exactly once.
    public func send(
        _ request: BLIPMessage, _ function: blip_response_fn?, _ context: UnsafeMutableRawPointer?,
        _ release: ReleaseFunction?
    ) -> blip_status {
        guard request.kind == .request, !request.isIncoming else { return BLIP_ERROR_ARGUMENT }
        guard state < BLIP_STATE_CLOSING else { return BLIP_ERROR_CLOSED }
        guard request.properties.count <= configuration.limits.properties else { return BLIP_ERROR_LIMIT }
        guard !request.frozen.exchange(true, ordering: .acquiringAndReleasing) else { return BLIP_ERROR_IMMUTABLE }
        request.connection = self
        request.responseFunction = function
        request.responseContext = context
        request.releaseResponseContext = release
        guard submit(request) else {
            request.responseFunction = nil
            request.responseContext = nil
            request.releaseResponseContext = nil
            request.connection = nil
            request.frozen.store(false, ordering: .releasing)
            return BLIP_ERROR_CLOSED
        }
        return BLIP_OK
    }

    /// Sends and waits for the response.
    public func request(_ request: BLIPMessage, timeout: Int64) -> (status: blip_status, response: BLIPMessage?) {
        guard EventLoop.current == nil else { return (BLIP_ERROR_WOULD_DEADLOCK, nil) }
        guard request.kind == .request, !request.isIncoming else { return (BLIP_ERROR_ARGUMENT, nil) }
        guard !request.isFrozen else { return (BLIP_ERROR_IMMUTABLE, nil) }
        guard request.wantsReply else { return (BLIP_ERROR_NO_REPLY, nil) }
        let waiter = Waiter()
        request.extras.requestWaiter = waiter
        let status = send(request, nil, nil, nil)
        guard status == BLIP_OK else {
            request.extras.requestWaiter = nil
            return (status, nil)
        }
        if let result = waiter.wait(timeout, in: context) { return (result.status, result.message) }
        request.isCancelled.store(true, ordering: .releasing)
        perform { [self] in
            abandon(request, Failure(BLIP_ERROR_TIMEOUT, "The request was not answered in time."))
        }
        return waiter.waitForEnd(in: context)
    }

    /// Hands a frozen message to the engine: at once on the loop, else through the inbox. False if the connection has ended.
    private func submit(_ message: BLIPMessage) -> Bool {
        countBacklog(message)
        if loop.isCurrent, !isFilling {
            if phase != .closed {
                accept(message)
                return true
            }
        } else if inbox.push(message, self) {
            return true
        }
        forgetBacklog(message)
        return false
    }

    // MARK: On the loop

    func accept(_ messages: [BLIPMessage]) {
        for message in messages { accept(message) }
    }

    @inline(__always)
    func accept(_ message: BLIPMessage) {
        message.isAccepted = true
        if message.isCancelled.load(ordering: .acquiring) {
            return reject(message, Failure(BLIP_ERROR_CANCELLED, "The request was cancelled."))
        }
        // Those that come from elsewhere than `submit`.
        if message.countedBytes == 0 { countBacklog(message) }
        switch phase {
        case .open:
            if isDraining, isUnanswerable(message) { return giveUp(message, Self.peerHasEnded) }
            withEngine { hand(message, to: $0) }
            requestOutput()
        case .closing, .closed:
            reject(message, failure ?? Failure(BLIP_ERROR_CLOSED, "The connection is closed."))
        default:
            startTimer(message)
            waitingToSend.append(message)
        }
        backlogDidChange()
    }

    @inline(__always)
    func hand(_ message: BLIPMessage, to engine: Engine) {
        guard !message.hasCompleted else { return }
        if let hooks, !passesOut(message, hooks) { return drop(outgoing: message) }
        if message.kind == .request {
            message.sentAt = loop.now
            startTimer(message)
        } else {
            unanswered -= 1
            countReply(message)
        }
        engine.send(message)
    }

    /// What a response holds in memory until it is sent.
    @inline(__always)
    private static func weight(_ response: BLIPMessage) -> Int {
        response.properties.count &+ response.body.count &+ 512
    }

    @inline(__always)
    private func countReply(_ response: BLIPMessage) {
        heldReplies &+= Self.weight(response)
        if heldReplies > configuration.repliesLimit { tooManyReplies() }
    }

    /// The peer sends requests and does not read what it gets.
    @inline(never)
    private func tooManyReplies() {
        guard !isOverfull else { return }
        isOverfull = true
        loop.post { [self] in
            guard let session else { return }
            break_(
                session, 1008,
                Failure(
                    BLIP_ERROR_LIMIT, code: 1008,
                    "The peer does not read its replies: more than \(configuration.repliesLimit) bytes of them wait."))
        }
    }

    @inline(__always)
    private func countBacklog(_ message: BLIPMessage) {
        message.countedBytes = message.knownSize
        backlog.add(message.countedBytes, ordering: .relaxed)
    }

    func startTimer(_ message: BLIPMessage) {
        guard let extras = message.existingExtras, extras.timeout >= 0, extras.timer == nil else { return }
        let timer = RequestTimer(message)
        extras.timer = timer
        loop.schedule(timer, at: loop.refreshNow() &+ nanoseconds(extras.timeout))
    }

    /// A message that will not be sent any more.
    func reject(_ message: BLIPMessage, _ failure: Failure) {
        forgetBacklog(message)
        backlogDidChange()
        didSend(message, failure.status)
        if message.kind == .request { complete(message, nil, failure.status) }
    }

    func forgetBacklog(_ message: BLIPMessage) {
        backlog.subtract(message.countedBytes, ordering: .relaxed)
        message.countedBytes = 0
    }

    /// Ends a request before its response: cancelled or too late. Loop thread.
    func abandon(_ request: BLIPMessage, _ failure: Failure) {
        // On its way to the loop: `accept` sees that it was cancelled.
        guard request.isAccepted else { return }
        if request.hasCompleted {
            endResponse(of: request, failure)
            return
        }
        if let index = waitingToSend.firstIndex(where: { $0 === request }) {
            waitingToSend.remove(at: index)
            return reject(request, failure)
        }
        guard let engine = session?.engine, phase == .open else { return }
        if engine.withdraw(request) { return reject(request, failure) }
        engine.abandon(request)
        complete(request, nil, failure.status)
        if isDraining { checkDrained() }
    }

    /// A request whose streamed response is still coming: what follows is thrown away.
    private func endResponse(of request: BLIPMessage, _ failure: Failure) {
        // What takes the place of a response that is thrown away already is no message of ours.
        guard let engine = session?.engine, phase == .open, let response = engine.response(to: request) as? BLIPMessage
        else { return }
        engine.abandon(request)
        dataDidArrive(response, status: failure.status, nil)
    }

    // MARK: Output

    public func stream(_ stream: Transport.Stream, fill buffer: UnsafeMutableRawBufferPointer) -> Int {
        guard let session else {
            let used = fillHead(buffer, stream)
            if used == 0, phase == .open { upgrade = nil }
            return used
        }
        var used = 0
        if let upgrade {
            used = fillHead(buffer, stream)
            if !upgrade.output.isEmpty { return used }
            self.upgrade = nil
        }
        isFilling = true
        defer { isFilling = false }
        used += session.link.fill(UnsafeMutableRawBufferPointer(rebasing: buffer[used...]), session, self)
        stream.worksInSteps = session.engine.isPacedByAcknowledgements
        guard phase == .open else { return used }
        // What is small is published when it is flushed.
        if used == 0 || used >= 64 << 10 { publishCounters(session, stream) }
        context.reclaim()
        if isDraining { checkDrained() }
        return used
    }

    /// The next frame that goes out; nil: there is none now.
    @inline(__always)
    func nextFrame(of session: Session, into buffer: UnsafeMutableRawBufferPointer) -> OutgoingFrame? {
        while true {
            let frame = session.engine.nextFrame(into: buffer)
            if frame.count > 0 {
                if isTracing { trace(UnsafeRawBufferPointer(rebasing: buffer[..<frame.count]), isOutgoing: true) }
                return frame
            }
            if let error = frame.error { sourceDidFail(session, error) }
            if let message = frame.message, let failure = frame.failure {
                fail(outgoing: Self.own(message), failure)
            }
            guard frame.failure != nil, frame.error == nil else { return nil }
        }
    }

    private func fillHead(_ buffer: UnsafeMutableRawBufferPointer, _ stream: Transport.Stream) -> Int {
        guard let upgrade, !upgrade.output.isEmpty else { return 0 }
        let count = upgrade.moveOutput(to: buffer)
        if upgrade.output.isEmpty, upgrade.endsAfterOutput != nil { stream.finishOutput() }
        return count
    }

    /// A frame of the message was cut.
    ///
    /// - Returns: true if the library is done with the message: it is to be recycled.
    @inline(__always)
    func frameDidLeave(_ message: BLIPMessage, isLast: Bool, _ session: Session) -> Bool {
        if let extras = message.existingExtras { reportProgress(message, extras) }
        message.publishedNumber.store(message.number, ordering: .relaxed)
        message.publishedBytes.store(message.bodyBytesSent, ordering: .relaxed)
        guard isLast else { return false }
        forgetBacklog(message)
        backlogDidChange()
        if message.kind != .request {
            heldReplies &-= Self.weight(message)
            if message.kind == .error { countErrorSent(session) }
        }
        var isDone = false
        let isNoReply = message.kind == .request && !message.wantsReply
        if (isNoReply && message.wantsCompletion) || message.extrasPointer.load(ordering: .relaxed) != nil
            || isSendingObserved
        {
            session.flushing.append(message)
        } else {
            message.sentStatus.store(BLIP_OK, ordering: .releasing)
            if message.kind != .request || isNoReply {
                message.hasCompleted = true
                isDone = true
            }
        }
        if isDraining { checkDrained() }
        return isDone
    }

    private func reportProgress(_ message: BLIPMessage, _ extras: MessageExtras) {
        guard let handler = extras.progress, message.bodyBytesSent > extras.reportedProgress else { return }
        extras.reportedProgress = message.bodyBytesSent
        deliver(
            Event(
                .progress(handler), value: Int64(bitPattern: message.bodyBytesSent), connection: self, message: message)
        )
    }

    public func streamDidFlush(_ stream: Transport.Stream) {
        if let failure = upgrade?.endsAfterOutput, upgrade?.output.isEmpty == true {
            self.failure = failure
            return
        }
        guard let session else { return }
        // What a turn has sent is counted now.
        publishCounters(session, stream)
        session.link.didFlush(self)
        didFlush(session)
    }

    /// What was sent has been handed over.
    func didFlush(_ session: Session) {
        guard !session.flushing.isEmpty else { return }
        let flushed = session.flushing
        session.flushing = []
        for message in flushed {
            didSend(message, BLIP_OK)
            guard message.kind == .request, !message.wantsReply else { continue }
            complete(message, nil, BLIP_OK)
            context.recycle(message)
        }
        context.reclaim()
    }

    /// Tells who asked whether a message got out. Once.
    private func didSend(_ message: BLIPMessage, _ status: blip_status) {
        guard message.sentStatus.load(ordering: .relaxed) == BLIPMessage.unknown else { return }
        message.sentStatus.store(status, ordering: .releasing)
        if hasHooks, !isFarewell(message) {
            tell(status == BLIP_OK ? BLIP_OBSERVE_SENT : BLIP_OBSERVE_NOT_SENT, message, status)
        }
        guard let extras = message.existingExtras else { return }
        let waiters = extras.shared.withLock { shared -> [Waiter] in
            defer { shared.sentWaiters = [] }
            return shared.sentWaiters
        }
        for waiter in waiters { waiter.signal(status) }
        guard let handler = extras.sent else { return }
        extras.sent = nil
        deliver(Event(.sent(handler), status: status, connection: self, message: message))
    }

    /// A body source failed before anything of its message was sent.
    private func fail(outgoing message: BLIPMessage, _ failure: MessageFailure) {
        if message.kind == .request {
            reject(message, Failure(Self.status(of: failure), "\(failure.text)"))
        } else {
            forgetBacklog(message)
            heldReplies &-= Self.weight(message)
            didSend(message, Self.status(of: failure))
            // The peer still waits for an answer.
            let error = makeError(to: message, domain: "BLIP", code: Int32(failure.code), text: "\(failure.text)")
            error.frozen.store(true, ordering: .relaxed)
            countReply(error)
            session?.engine.send(error)
        }
    }

    private func sourceDidFail(_ session: Session, _ error: ProtocolError) {
        break_(session, 1011, Failure(BLIP_ERROR_BODY, code: 1011, "\(error.text)"))
    }

    /// A body ended in the middle of its message.
    func bodyDidFail(_ session: Session) { sourceDidFail(session, ProtocolError.bodyFailed) }

    // MARK: Responding

    /// Sends a response; any thread.
    public func respond(to request: BLIPMessage, with response: BLIPMessage) -> blip_status {
        guard response.number == request.number, response.belongs(to: self) else { return BLIP_ERROR_ARGUMENT }
        let status = takeReply(of: request)
        guard status == BLIP_OK else { return status }
        guard !response.frozen.exchange(true, ordering: .acquiringAndReleasing) else {
            request.reply.store(ReplyState.deferred, ordering: .releasing)
            return BLIP_ERROR_IMMUTABLE
        }
        guard response.properties.count <= configuration.limits.properties, submit(response) else {
            let status =
                response.properties.count > configuration.limits.properties ? BLIP_ERROR_LIMIT : BLIP_ERROR_CLOSED
            response.frozen.store(false, ordering: .releasing)
            request.reply.store(ReplyState.deferred, ordering: .releasing)
            return status
        }
        return BLIP_OK
    }

    private func takeReply(of request: BLIPMessage) -> blip_status {
        guard request.isIncoming, request.kind == .request else { return BLIP_ERROR_ARGUMENT }
        guard request.wantsReply else { return BLIP_ERROR_NO_REPLY }
        guard state != BLIP_STATE_CLOSED else { return BLIP_ERROR_CLOSED }
        var seen = request.reply.load(ordering: .relaxed)
        while true {
            guard seen != ReplyState.replied else { return BLIP_ERROR_ALREADY_RESPONDED }
            let (done, now) = request.reply.compareExchange(
                expected: seen, desired: ReplyState.replied, ordering: .acquiringAndReleasing)
            if done { return BLIP_OK }
            seen = now
        }
    }

    /// A response for a request, not yet sent. It inherits the request's urgency.
    @inline(__always)
    public func makeResponse(to request: BLIPMessage, _ kind: MessageKind = .response) -> BLIPMessage {
        let response = LoopContext.newMessage()
        response.become(kind, to: request, on: self)
        return response
    }

    public func respondEmpty(to request: BLIPMessage) -> blip_status {
        respond(to: request, with: makeResponse(to: request))
    }

    public func respond(
        to request: BLIPMessage, domain: String, code: Int32, text: String
    ) -> blip_status {
        respond(to: request, with: makeError(to: request, domain: domain, code: code, text: text))
    }

    /// An error response with the number and urgency of `message`.
    func makeError(to message: BLIPMessage, domain: String, code: Int32, text: String) -> BLIPMessage {
        let response = makeResponse(to: message, .error)
        var domain = domain
        var number = String(code)
        var text = text
        domain.withUTF8 { domain in
            _ = response.setProperty(("Error-Domain" as StaticString).bytes, UnsafeRawBufferPointer(domain))
        }
        number.withUTF8 { number in
            _ = response.setProperty(("Error-Code" as StaticString).bytes, UnsafeRawBufferPointer(number))
        }
        text.withUTF8 { _ = response.body.append(UnsafeRawBufferPointer($0)) }
        return response
    }

    /// The program let go of an incoming request.
    func requestHandleDidEnd(_ request: BLIPMessage) {
        guard request.wantsReply, request.reply.load(ordering: .acquiring) == ReplyState.deferred else { return }
        _ = respond(
            to: request, domain: "BLIP", code: 501, text: "The request's handler let go of it without an answer")
    }
}
