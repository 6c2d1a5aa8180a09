import BLIPProtocol
import CBLIP
import Synchronization
import Transport

/// The message "Bye" of BLIP 1 and 2: one side asks to close and the other agrees or refuses; who asked ends the
/// transport when nothing is under way any more (BLIP 1 §"Closing").
extension Connection {
    /// What few connections have; made on first use.
    func makeFarewell() -> Farewell {
        if let farewell { return farewell }
        let new = Farewell()
        farewell = new
        return new
    }

    /// A peer that knows "Bye" has heard ours, or has said its own.
    var hasSaidBye: Bool { farewell.map { $0.isSaid || $0.isAgreed } ?? false }

    /// The end of a stream of version 1 is no accident: somebody has said "Bye".
    var isEndExpected: Bool { farewell.map { $0.isAgreed || ($0.isSaid && isDraining) } ?? false }

    // MARK: Ours

    /// Asks the peer to agree to closing; any thread. The handler is told once.
    public func sayBye(_ handler: Handler<blip_bye_fn>) -> blip_status {
        guard state == BLIP_STATE_OPEN else { return state < BLIP_STATE_OPEN ? BLIP_ERROR_STATE : BLIP_ERROR_CLOSED }
        guard protocolVersion < 3 else { return BLIP_ERROR_UNSUPPORTED }
        // Posted even from the loop: the answer never comes inside the call.
        let isPosted = loop.post { [self] in
            guard phase == .open, !isDraining else {
                return deliver(Event(.bye(handler), status: BLIP_ERROR_CLOSED, connection: self))
            }
            guard farewell?.request == nil else {
                return deliver(Event(.bye(handler), status: BLIP_ERROR_STATE, connection: self))
            }
            let farewell = makeFarewell()
            // The peer was faster.
            if farewell.isPeerLeaving { return deliver(Event(.bye(handler), value: 1, connection: self)) }
            farewell.handler = handler
            sendBye()
        }
        return isPosted ? BLIP_OK : BLIP_ERROR_CLOSED
    }

    /// Sends "Bye". The answer comes to `byeDidComplete`.
    func sendBye() {
        let farewell = makeFarewell()
        guard farewell.request == nil, !farewell.isPeerLeaving else { return }
        let request = LoopContext.newMessage()
        request.kind = .request
        request.flags = .meta
        _ = request.setProperty(Self.profileKey, Self.byeProfile)
        request.connection = self
        request.isAccepted = true
        request.frozen.store(true, ordering: .relaxed)
        request.extras.isBye = true
        farewell.request = request
        farewell.isSaid = true
        farewell.deadline = min(farewell.deadline, loop.refreshNow() &+ configuration.byeTimeout)
        armNextTimer()
        withEngine { hand(request, to: $0) }
        requestOutput()
    }

    /// The peer has answered ours, or never will.
    func byeDidComplete(_ response: BLIPMessage?, _ status: blip_status) {
        guard let farewell else { return }
        farewell.request = nil
        let handler = farewell.handler
        farewell.handler = nil
        let agrees = status == BLIP_OK && (response.map { $0.kind == .response || Self.isUnknown($0) } ?? false)
        if agrees { farewell.isAgreed = true }
        if let handler {
            // Who is told that the peer agrees finds that nothing can be sent any more.
            if agrees, phase == .open { markClosing() }
            deliver(Event(.bye(handler), status: status, value: agrees ? 1 : 0, connection: self))
            guard phase == .open else { return }
            if agrees {
                drain(until: farewell.deadline)
            } else if !isDraining {
                farewell.isSaid = false
                farewell.deadline = .max
                armNextTimer()
            }
        }
        if isDraining { checkDrained() }
    }

    /// A peer that does not know "Bye" has nothing against it.
    private static func isUnknown(_ response: BLIPMessage) -> Bool {
        guard response.kind == .error, let code = response.property(("Error-Code" as StaticString).bytes),
            code.elementsEqual("404".utf8)
        else { return false }
        let domain = response.property(("Error-Domain" as StaticString).bytes)
        return domain?.elementsEqual("BLIP".utf8) ?? true
    }

    // MARK: The peer's

    /// A message of the protocol itself.
    @inline(never)
    func handleMeta(_ request: BLIPMessage) {
        guard let profile = request.property(Self.profileKey), profile.elementsEqual(Self.byeProfile) else {
            if request.wantsReply {
                _ = respond(to: request, domain: "BLIP", code: 404, text: "No handler for BLIP request")
            }
            return
        }
        let farewell = makeFarewell()
        guard !farewell.isPeerLeaving, farewell.peerRequest == nil else {
            if request.wantsReply { _ = respondEmpty(to: request) }
            return
        }
        request.reply.store(ReplyState.deferred, ordering: .relaxed)
        farewell.peerRequest = request
        guard let handler = settings.closeRequest, !isDraining else { return answerBye(true) }
        deliver(Event(.closeRequest(handler, request), connection: self))
    }

    /// What the program says to the peer's "Bye"; any thread.
    public func answerCloseRequest(_ accepts: Bool) -> blip_status { answerCloseRequest(accepts, of: nil) }

    /// The same to a certain one, if that still waits.
    func answerCloseRequest(_ accepts: Bool, of question: BLIPMessage?) -> blip_status {
        guard state != BLIP_STATE_CLOSED else { return BLIP_ERROR_CLOSED }
        perform { [self] in
            if question == nil || farewell?.peerRequest === question { answerBye(accepts) }
        }
        return BLIP_OK
    }

    private func answerBye(_ accepts: Bool) {
        guard let farewell, let request = farewell.peerRequest, phase == .open else { return }
        farewell.peerRequest = nil
        guard accepts else {
            if request.wantsReply {
                _ = respond(to: request, domain: "BLIP", code: 403, text: "Close request was refused")
            }
            return
        }
        farewell.isPeerLeaving = true
        farewell.isAgreed = true
        if request.wantsReply { _ = respondEmpty(to: request) }
        // The peer ends the transport; if it does not, we do.
        farewell.deadline = min(farewell.deadline, loop.refreshNow() &+ configuration.byeTimeout)
        publishClosing()
        armNextTimer()
    }

    @inline(__always)
    private static var byeProfile: UnsafeRawBufferPointer { ("Bye" as StaticString).bytes }
}
