import BLIPProtocol
import CBLIP
import Synchronization
import Transport

/// A peer that has ended its own direction of the stream and still listens, if the options say that this is no end.
extension Connection {
    static let peerHasEnded = Failure(
        BLIP_ERROR_CONNECTION_LOST, "The peer ended its direction of the connection before everything had come.")

    /// Answers what the peer has asked and sends what is queued, then closes.
    public func stream(_ stream: Transport.Stream, inputDidEndLeaving rest: Int) -> Bool {
        guard configuration.halfClose > 0 else { return false }
        if phase == .closing, stream.bytesPending > 0 || stream.willFill {
            // The rest of what was to be sent before this side closes, and its goodbye.
            makeFarewell().hasPeerEnded = true
            return true
        }
        guard phase == .open, let session = openSession() else { return false }
        runtimeHold.log(BLIP_LOG_DEBUG, "connection", "the peer sends no more")
        let farewell = makeFarewell()
        farewell.hasPeerEnded = true
        if !isDraining { tell(BLIP_OBSERVE_WILL_CLOSE) }
        isDraining = true
        publishClosing()
        nextPing = .max
        session.link.endPings(Self.peerHasEnded.status, now: .max, self)
        let (requests, incoming, isCut) = session.engine.endInput()
        for request in requests.map(Self.own) {
            // A "Bye" without an answer is answered by this end.
            if request.existingExtras?.isBye != true { farewell.failure = Self.peerHasEnded }
            giveUp(request, Self.peerHasEnded)
        }
        if isCut || rest > 0 { farewell.failure = Self.peerHasEnded }
        for message in incoming.map(Self.own) { cutOff(message) }
        guard phase == .open else { return true }
        farewell.deadline = min(farewell.deadline, loop.refreshNow() &+ configuration.halfClose)
        armNextTimer()
        requestOutput()
        checkDrained()
        return true
    }

    /// Whether a message is a request that nobody can answer any more.
    @inline(never)
    func isUnanswerable(_ message: BLIPMessage) -> Bool {
        farewell?.hasPeerEnded == true && message.kind == .request && message.wantsReply
    }

    /// The rest of a message will not come.
    private func cutOff(_ message: BLIPMessage) {
        let wasStreamed = message.isBodyStreamed.load(ordering: .relaxed)
        if wasStreamed { dataDidArrive(message, status: Self.peerHasEnded.status, nil) }
        guard phase == .open, message.kind == .request, message.wantsReply else { return }
        if !wasStreamed { unanswered += 1 }
        guard message.reply.load(ordering: .relaxed) != ReplyState.replied else { return }
        _ = respond(to: message, domain: "BLIP", code: 400, text: "The rest of the request did not come")
    }

    /// What the end of a connection is reported as that has had time enough.
    func lateFailure(_ farewell: Farewell) -> Failure? {
        guard farewell.hasPeerEnded else { return nil }
        return farewell.failure
            ?? Failure(
                BLIP_ERROR_CONNECTION_LOST,
                "The peer ended its direction of the connection, and not all was sent to it in the time allowed.")
    }
}
