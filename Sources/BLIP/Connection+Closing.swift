import BLIPProtocol
import CBLIP
import Glibc
import Synchronization
import Transport
import WebSocketProtocol

extension Connection {
    // MARK: From any thread

    /// Closes: requests under way complete with `BLIP_ERROR_CLOSED`.
    public func close(code: UInt16, reason: [UInt8]) -> blip_status {
        guard WebSocketFrame.isValidCloseCode(code) else { return BLIP_ERROR_ARGUMENT }
        guard state != BLIP_STATE_CLOSED else { return BLIP_OK }
        markClosing()
        loop.post { [self] in beginClose(code: code, reason: reason, nil) }
        return BLIP_OK
    }

    /// Closes when everything under way is finished, at the latest after `timeout` milliseconds.
    public func closeGracefully(timeout: Int64, code: UInt16 = 1000) -> blip_status {
        guard state != BLIP_STATE_CLOSED else { return BLIP_OK }
        markClosing()
        loop.post { [self] in drain(timeout: timeout, code: code) }
        return BLIP_OK
    }

    /// From now on nothing new is accepted; the state callback follows from the loop.
    func markClosing() {
        var seen = state
        while seen < BLIP_STATE_CLOSING {
            let (done, now) = publishedState.compareExchange(
                expected: seen, desired: BLIP_STATE_CLOSING, ordering: .acquiringAndReleasing)
            if done { return }
            seen = now
        }
    }

    public func waitOpen(timeout: Int64) -> blip_status {
        guard EventLoop.current == nil else { return BLIP_ERROR_WOULD_DEADLOCK }
        if !isIncoming, state == BLIP_STATE_NEW {
            let status = connect()
            // Another thread may have been first.
            guard status == BLIP_OK || status == BLIP_ERROR_STATE else { return status }
        }
        let waiter = Waiter()
        let now = withInfo { info -> blip_status? in
            if let status = info.finalStatus { return status == BLIP_OK ? BLIP_ERROR_CLOSED : status }
            if state == BLIP_STATE_OPEN { return BLIP_OK }
            // One that has never been open is about to say why.
            if state > BLIP_STATE_OPEN, info.version != 0 { return BLIP_ERROR_CLOSED }
            info.openWaiters.append(waiter)
            return nil
        }
        if let now { return now }
        // It may have opened between the look and the registration.
        if state == BLIP_STATE_OPEN { return BLIP_OK }
        if let result = waiter.wait(timeout, in: context) { return result.status }
        withInfo { $0.openWaiters.removeAll { $0 === waiter } }
        return BLIP_ERROR_TIMEOUT
    }

    public func waitClosed(timeout: Int64) -> blip_status {
        guard EventLoop.current == nil else { return BLIP_ERROR_WOULD_DEADLOCK }
        let waiter = Waiter()
        let isClosed = withInfo { info -> Bool in
            if info.hasEnded { return true }
            info.closeWaiters.append(waiter)
            return false
        }
        if isClosed { return BLIP_OK }
        if waiter.wait(timeout, in: context) != nil { return BLIP_OK }
        withInfo { $0.closeWaiters.removeAll { $0 === waiter } }
        return BLIP_ERROR_TIMEOUT
    }

    // MARK: On the loop

    /// Begins to close for the program. `failure` is what the connection's end is reported as, nil if it is as asked.
    func beginClose(code: UInt16, reason: [UInt8], _ failure: Failure?) {
        switch phase {
        case .closed, .closing: return
        case .open:
            // Without a stream there is nothing to be written, so that a session that rests need not be made.
            let session = isFramed ? session : openSession()
            guard session != nil || isFramed else { return finish(failure) }
            if !isDraining { tell(BLIP_OBSERVE_WILL_CLOSE, nil, failure?.status ?? BLIP_OK) }
            let pending = failure ?? Failure(BLIP_ERROR_CLOSED, "The connection was closed by this side.")
            startClosing(pending: pending, final: failure)
            if let session {
                session.link.close(code: code, reason: reason, self)
            } else {
                endCarrier(code: code, reason: reason)
            }
        case .waitingForAccept:
            tell(BLIP_OBSERVE_WILL_CLOSE, nil, failure?.status ?? BLIP_OK)
            refuse(
                ServerHandshake.refusal(status: 403, text: "The connection was refused."),
                failure ?? Failure(BLIP_ERROR_CLOSED, "The connection was refused."))
        default:
            tell(BLIP_OBSERVE_WILL_CLOSE, nil, failure?.status ?? BLIP_OK)
            finish(failure)
        }
    }

    /// The peer broke a protocol: says so with a close frame and ends.
    func break_(_ session: Session, _ code: UInt16, _ failure: Failure) {
        guard phase == .open || phase == .closing else { return }
        guard !session.isBroken else { return }
        session.isBroken = true
        runtimeHold.log(BLIP_LOG_WARNING, "connection", failure.text)
        if phase == .open { startClosing(pending: failure, final: failure) }
        session.link.fail(code: code, text: failure.text, self)
    }

    /// The peer has said that it closes; nil: without a code.
    func peerDidClose(_ code: UInt16?, _ reason: String) {
        let number = Int64(code ?? 1005)
        if phase == .open {
            let said = reason.isEmpty ? "" : ": \(Self.printable(reason))"
            let failure = Failure(
                BLIP_ERROR_PEER_CLOSED, domain: "WebSocket", code: number,
                "The peer closed the connection with code \(number)\(said)")
            let isOrderly = code == nil || code == 1000 || code == 1001
            startClosing(pending: failure, final: isOrderly ? nil : failure)
        }
        withInfo { $0.closeCode = Int32(number) }
    }

    /// A peer's text without what would begin a new line in a log, or control a terminal.
    static func printable(_ text: String) -> String {
        var result = ""
        for scalar in text.unicodeScalars {
            let isControl = scalar.value < 0x20 || (0x7F...0x9F).contains(scalar.value)
            result.unicodeScalars.append(isControl ? "\u{FFFD}" : scalar)
        }
        return result
    }

    /// Nothing of BLIP is sent or received any more; whoever waits is told.
    func startClosing(pending: Failure, final: Failure?) {
        if pending.status == BLIP_ERROR_PEER_CLOSED, !isDraining {
            tell(BLIP_OBSERVE_WILL_CLOSE, nil, BLIP_ERROR_PEER_CLOSED)
        }
        phase = .closing
        failure = final
        publishClosing()
        failEverything(pending)
        // A full queue holds up what the peer sends to the program, not its answer to the closing handshake.
        if isReadingPaused {
            isReadingPaused = false
            readingDidPause(false)
            resumeReading()
        }
    }

    func publishClosing() {
        let old = publishedState.exchange(BLIP_STATE_CLOSING, ordering: .acquiringAndReleasing)
        guard old != BLIP_STATE_CLOSING || !hasAnnouncedClosing.load(ordering: .relaxed) else { return }
        hasAnnouncedClosing.store(true, ordering: .relaxed)
        if let handler = settings.state {
            deliver(Event(.state(handler), value: Int64(BLIP_STATE_CLOSING), connection: self))
        }
    }

    private func drain(timeout: Int64, code: UInt16) {
        switch phase {
        case .open:
            if !isDraining {
                tell(BLIP_OBSERVE_WILL_CLOSE)
                makeFarewell().closeCode = code
            }
            drain(until: timeout < 0 ? .max : loop.refreshNow() &+ nanoseconds(timeout))
        case .closing, .closed: return
        default: beginClose(code: 1001, reason: [], nil)
        }
    }

    func drain(until deadline: UInt64) {
        guard !isDraining else { return }
        isDraining = true
        publishClosing()
        let farewell = makeFarewell()
        farewell.deadline = min(farewell.deadline, deadline)
        // In version 1 nothing else tells the peer that the end of the stream is meant.
        if version == .v1, !farewell.isSaid { sendBye() }
        armNextTimer()
        checkDrained()
    }

    /// Closes once nothing is under way any more.
    func checkDrained() {
        guard isDraining, phase == .open, session?.engine.isIdle != false, unanswered <= 0 else { return }
        loop.post { [self] in
            guard phase == .open, session?.engine.isIdle != false, unanswered <= 0 else { return }
            beginClose(code: farewell?.closeCode ?? 1000, reason: [], farewell?.failure)
        }
    }

    // MARK: The transport's end

    public func stream(_ stream: Transport.Stream, didEnd error: TransportError?) {
        if streamDidEndOnTheWay() { return }
        switch phase {
        case .closing:
            // Without an answer of the peer's nothing else tells that it has got what was sent.
            let lost = farewell?.hasPeerEnded == true ? error.map { Failure($0) } : nil
            finish(failure ?? lost)
        case .open where version == .v1 && error == nil && isEndExpected:
            finish(nil)
        case .open:
            finish(
                error.map { Failure($0) }
                    ?? Failure(
                        BLIP_ERROR_CONNECTION_LOST,
                        version == .v1
                            ? "The peer ended the connection without saying Bye."
                            : "The peer ended the connection without closing the WebSocket."))
        case .securing:
            finish(
                error.map { Failure($0) }
                    ?? Failure(
                        BLIP_ERROR_CONNECTION_LOST, "The peer ended the connection during the TLS handshake."))
        default:
            finish(
                error.map { Failure($0) }
                    ?? Failure(
                        BLIP_ERROR_CONNECTION_LOST,
                        upgrade == nil
                            ? "The peer ended the connection before it opened."
                            : "The peer ended the connection during the HTTP upgrade."))
        }
    }

    /// The end, once: everything that waits is completed, and the closed callback comes last.
    func finish(_ failure: Failure?) {
        guard phase != .closed else { return }
        if phase != .closing { publishClosing() }
        let wasIdle = phase == .idle
        phase = .closed
        if let timer {
            loop.cancel(timer)
            timer.connection = nil
        }
        timer = nil
        dialer?.cancel()
        dialer = nil
        stream?.close()
        if let carrier {
            self.carrier = nil
            carrier.end()
        }
        if let failure {
            runtimeHold.log(BLIP_LOG_INFO, "connection", "ended: \(failure.text)")
            listener?.dashboard?.note(failure.text, peer: peerText)
            let error = OwnedError(ErrorRecord(failure))
            withInfo { $0.error = error }
        }
        failEverything(failure ?? Failure(BLIP_ERROR_CLOSED, "The connection was closed."))
        // A message that waits to be used again keeps its connection, and with it the loop that keeps the message.
        loop.post { [context] in context.reclaim() }
        endCounters(wasIdle: wasIdle)
        if let link = session?.link as? FrameLink { context.frameSessions.remove(link) }
        session = nil
        farewell = nil
        stream = nil
        upgrade = nil
        attempt = nil
        publishedState.store(BLIP_STATE_CLOSED, ordering: .releasing)
        if let handler = settings.state {
            deliver(Event(.state(handler), value: Int64(BLIP_STATE_CLOSED), connection: self))
        }
        let status = failure?.status ?? BLIP_OK
        let openWaiters = withInfo { info -> [Waiter] in
            info.finalStatus = status
            defer { info.openWaiters = [] }
            return info.openWaiters
        }
        for waiter in openWaiters { waiter.signal(status == BLIP_OK ? BLIP_ERROR_CLOSED : status) }
        context.remove(self)
        tell(BLIP_OBSERVE_CLOSED, nil, status)
        let close = settings.close
        endBacklog()
        endSettings()
        if let close {
            deliver(Event(.close(close), status: status, connection: self))
        } else {
            closeDidSettle()
        }
        // Who waits for the end goes on when the closed callback was run, or is in the program's queue.
        let closeWaiters = withInfo { info -> [Waiter] in
            info.hasEnded = true
            defer { info.closeWaiters = [] }
            return info.closeWaiters
        }
        for waiter in closeWaiters { waiter.signal(status) }
        listener?.connectionDidEnd()
        runtimeHold.objectDidEnd()
    }

    /// Completes every request, send and stream with a failure.
    private func failEverything(_ failure: Failure) {
        let late = phase == .closed ? inbox.close() : inbox.drain()
        let waiting = waitingToSend
        waitingToSend = []
        var flushing: [BLIPMessage] = []
        if let session {
            flushing = session.flushing
            session.flushing = []
            let (requests, outgoing, incoming) = session.engine.takeAll()
            for message in outgoing.map(Self.own) { giveUp(message, failure) }
            for message in incoming.map(Self.own) where message.isBodyStreamed.load(ordering: .relaxed) {
                dataDidArrive(message, status: failure.status, nil)
            }
            for message in requests.map(Self.own) { giveUp(message, failure) }
            session.link.endPings(failure.status, now: .max, self)
        }
        for message in flushing { reject(message, failure) }
        for message in waiting {
            // What an interceptor has dropped waits here to be told, and is sent by nobody.
            if message.isFiltered { reject(message, Self.filtered) } else { giveUp(message, failure) }
        }
        for message in late { giveUp(message, failure) }
    }

    /// A message that this connection will not send: another may, if a reconnector carries it and nothing of it has left.
    func giveUp(_ message: BLIPMessage, _ failure: Failure) {
        if let extras = message.existingExtras, let carrier = extras.carrier, carrier.takesBack(message) {
            forgetBacklog(message)
            message.isAccepted = false
            message.place(on: nil)
            carrier.takeBack(message)
        } else {
            reject(message, failure)
        }
    }
}

func closeDescriptor(_ descriptor: Int32) { _ = Glibc.close(descriptor) }
