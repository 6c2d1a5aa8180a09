import BLIPProtocol
import CBLIP
import Transport
import WebSocketProtocol

extension Connection {
    // MARK: The timer

    func armTimer(after delay: UInt64) {
        guard delay < UInt64.max / 2 else { return }
        armTimer(at: loop.refreshNow() &+ delay)
    }

    func armTimer(at deadline: UInt64) {
        let timer = self.timer ?? ConnectionTimer(self)
        self.timer = timer
        loop.schedule(timer, at: deadline)
    }

    /// Arms the timer of an open connection for whatever is due first.
    func armNextTimer() {
        guard phase == .open else { return }
        let next = min(nextPing, farewell?.deadline ?? .max, session?.link.pingDeadline ?? .max, stalls?.next ?? .max)
        if next < UInt64.max / 2 {
            armTimer(at: next)
        } else if let timer {
            loop.cancel(timer)
        }
    }

    func timerDidFire() {
        let now = loop.refreshNow()
        switch phase {
        case .idle, .closed: break
        case .open: openTimerDidFire(now)
        case .closing:
            if let session {
                session.link.timeOut(now: now, self)
            } else {
                finish(failure ?? upgrade?.endsAfterOutput)
            }
        case .upgrading where isSilentStream:
            // The program may want to think about it.
            armTimer(after: configuration.connectTimeout)
            acceptStream()
        case .connecting, .securing, .upgrading, .waitingForAccept:
            let peer = (attempt?.url ?? url).map { $0.unixPath == nil ? $0.hostHeader : $0.description }
            let whom = (peer ?? stream?.remoteAddress.description).map { " with \($0)" } ?? ""
            let what =
                switch phase {
                case .connecting: dialer?.activity ?? "connecting"
                case .securing: "the TLS handshake\(whom)"
                default: "the HTTP upgrade\(whom)"
                }
            let time = configuration.connectTimeout / 1_000_000
            tell(BLIP_OBSERVE_CONNECT_TIMED_OUT, nil, BLIP_ERROR_TIMEOUT)
            finish(Failure(BLIP_ERROR_TIMEOUT, "Timed out after \(time) ms during \(what)."))
        }
    }

    private func openTimerDidFire(_ now: UInt64) {
        if let farewell, now >= farewell.deadline { return beginClose(code: 1001, reason: [], lateFailure(farewell)) }
        session?.link.endPings(BLIP_ERROR_TIMEOUT, now: now, self)
        guard phase == .open else { return }
        if let stalls, now >= stalls.next { checkStalls(stalls, now) }
        guard phase == .open else { return }
        if now >= nextPing, version == .v1 {
            // There are no pings; the rest of the rhythm is kept.
            session?.engine.releaseIdleMemory()
            nextPing = now &+ configuration.pingInterval
        } else if now >= nextPing, let stream {
            let hasHeard = stream.bytesReceived != lastBytesReceived
            if hasHeard || isReadingPaused {
                silentPings = 0
            } else if silentPings >= configuration.pingsMissed {
                return finish(
                    Failure(
                        BLIP_ERROR_PEER_SILENT, "Nothing came from the peer, not even an answer to pings."))
            }
            lastBytesReceived = stream.bytesReceived
            if !hasHeard || !configuration.pingsOnlyIdle {
                silentPings += 1
                openSession()?.link.ping(nil, deadline: .max, now: now, self)
            }
            session?.engine.releaseIdleMemory()
            nextPing = now &+ configuration.pingInterval
        }
        armNextTimer()
    }

    func startKeepAlive() {
        if let stream {
            lastBytesReceived = stream.bytesReceived
            nextPing =
                configuration.pingInterval == 0 ? .max : loop.refreshNow() &+ configuration.pingInterval
        }
        startStallWatch()
        let known = timer
        if let known { loop.cancel(known) }
        armNextTimer()
        // Nothing is due, and many connections are idle: it is made anew if need be.
        guard let known, !known.isScheduled else { return }
        known.connection = nil
        timer = nil
    }

    // MARK: Pings

    /// Sends a ping; any thread. The handler gets the round trip in microseconds, or why there is none.
    public func ping(timeout: Int64, _ handler: Handler<blip_pong_fn>) -> blip_status {
        guard state == BLIP_STATE_OPEN else { return state < BLIP_STATE_OPEN ? BLIP_ERROR_STATE : BLIP_ERROR_CLOSED }
        guard protocolVersion > 1, !isFramed else { return BLIP_ERROR_UNSUPPORTED }
        perform { [self] in
            let now = loop.refreshNow()
            guard phase != .closed else { return }
            guard let session = openSession(), phase == .open else {
                return deliver(Event(.pong(handler), status: BLIP_ERROR_CLOSED, connection: self))
            }
            session.link.ping(
                handler, deadline: timeout < 0 ? .max : now &+ nanoseconds(timeout), now: now, self)
            armNextTimer()
        }
        return BLIP_OK
    }

    func report(_ ping: Ping, _ status: blip_status, _ microseconds: Int64) {
        guard let handler = ping.handler else { return }
        deliver(Event(.pong(handler), status: status, value: microseconds, connection: self))
    }
}
