import BLIPProtocol
import CBLIP
import Transport
import WebSocketProtocol

/// Whether a client of a listener is let in: by the listener's table, by the origin of a web page, by the program.
extension Connection {
    /// A client's request: goes on with `next` once its user is known, if the listener wants to know one.
    func admit(_ request: HTTPRequestHead, _ listener: Listener, next: @escaping (HTTPRequestHead) -> Void) {
        let access = listener.access
        guard access.hasUsers else { return next(request) }
        switch access.judge(request) {
        case .good(let user):
            remember(user: user)
            next(request)
        case .missing: turnAway(request, access)
        case .unknown(let user, let password, let hash, let isDecoy):
            // Nothing is read until the password was compared; the handshake's time goes on.
            phase = .waitingForAccept
            stream?.pauseReading()
            let check = PasswordCheck(loop: loop, hash: hash, password: password) { [self] isRight in
                guard phase == .waitingForAccept else { return }
                phase = .upgrading
                if isRight, !isDecoy {
                    access.remember(user, password)
                    remember(user: user)
                    next(request)
                } else {
                    runtimeHold.log(BLIP_LOG_WARNING, "listener", "a client gave a wrong user name or password")
                    turnAway(request, access)
                }
                if phase == .upgrading { stream?.resumeReading() }
            }
            guard access.passwords.add(check) else {
                let text = "Too many clients are giving passwords; try again later."
                return refuse(
                    ServerHandshake.refusal(status: 503, text: text, headers: [HTTPHeader("Retry-After", "2")]),
                    Failure(BLIP_ERROR_HTTP, domain: "HTTP", code: 503, text))
            }
        }
    }

    private func turnAway(_ request: HTTPRequestHead, _ access: ListenerAccess) {
        let text = "A user name and a password are needed."
        refuse(
            ServerHandshake.refusal(
                status: 401, text: text, headers: [access.challenge], omitBody: request.method == "HEAD"),
            Failure(BLIP_ERROR_HTTP, domain: "HTTP", code: 401, text))
    }

    private func remember(user: String) {
        let text = Text(user)
        withInfo { $0.user = text }
    }

    /// Web pages of other origins do not get in; true: this one is turned away.
    func refusesOrigin(_ request: HTTPRequestHead, _ listener: Listener) -> Bool {
        guard !listener.access.allowOrigin(of: request, isSecure: stream?.isSecure ?? false) else { return false }
        let text = "Web pages of this origin may not connect."
        refuse(
            ServerHandshake.refusal(status: 403, text: text),
            Failure(BLIP_ERROR_HTTP, domain: "HTTP", code: 403, text))
        return true
    }

    /// Shows the client to the program.
    func present(_ request: HTTPRequestHead?, _ handler: Handler<blip_accept_fn>, _ listener: Listener) {
        rememberAddresses()
        let decision = AcceptDecision(request)
        withInfo { $0.decision = decision }
        deliver(Event(.accept(handler), connection: self, listener: listener))
    }

    /// The program has decided against the client; true: it is turned away.
    func refusesByDecision() -> Bool {
        guard let decision = withInfo({ $0.decision }) else { return false }
        guard let (status, text) = decision.refusal else {
            upgrade?.add(decision.headers)
            return false
        }
        refuse(
            ServerHandshake.refusal(status: status, text: text, headers: decision.headers),
            Failure(BLIP_ERROR_HTTP, domain: "HTTP", code: Int64(status), text))
        return true
    }

    // MARK: From any thread

    /// Calls `body` with the decision that is pending.
    private func withDecision(_ body: (AcceptDecision) -> blip_status) -> blip_status {
        guard let decision = withInfo({ $0.decision }) else { return BLIP_ERROR_STATE }
        return body(decision)
    }

    public func deferAccept() -> blip_status { withDecision { $0.postpone() } }

    public func addResponseHeader(_ name: String, _ value: String) -> blip_status {
        let header = HTTPHeader(name, value)
        guard header.isValid, !ClientHandshake.isReserved(name) else { return BLIP_ERROR_ARGUMENT }
        return withDecision { $0.add(header) }
    }

    public func accept(user: String) -> blip_status {
        withDecision { decision in
            let status = decision.decide(nil)
            guard status == BLIP_OK else { return status }
            if !user.isEmpty { remember(user: user) }
            loop.post { [self] in continueAfterAccept() }
            return BLIP_OK
        }
    }

    public func reject(status: Int32, text: String) -> blip_status {
        guard (400...599).contains(status) else { return BLIP_ERROR_ARGUMENT }
        return withDecision { decision in
            let done = decision.decide((Int(status), text.isEmpty ? "The connection was refused." : text))
            if done == BLIP_OK { loop.post { [self] in continueAfterAccept() } }
            return done
        }
    }

    public var credentialScheme: Text? { withInfo { $0.decision }?.scheme }
    public var credentialUser: Text? { withInfo { $0.decision }?.user }
    public var credentialSecret: Text? { withInfo { $0.decision }?.secret }
    public var userText: Text? { withInfo { $0.user } }

    public func credentialParameter(_ name: String) -> Text? { withInfo { $0.decision }?.parameter(name) }

    public func checkPassword(_ password: UnsafeRawBufferPointer) -> Bool? {
        withInfo { $0.decision }?.check(password)
    }
}
