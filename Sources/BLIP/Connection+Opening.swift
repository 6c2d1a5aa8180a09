import BLIPProtocol
import CBLIP
import Synchronization
import Transport
import WebSocketProtocol

extension Connection {
    // MARK: Outgoing

    /// Begins to connect; any thread.
    public func connect() -> blip_status {
        guard !isIncoming else { return BLIP_ERROR_STATE }
        let (done, seen) = publishedState.compareExchange(
            expected: BLIP_STATE_NEW, desired: BLIP_STATE_CONNECTING, ordering: .acquiringAndReleasing)
        guard done else { return seen < BLIP_STATE_CLOSING ? BLIP_ERROR_STATE : BLIP_ERROR_CLOSED }
        return loop.post({ [self] in startConnecting() }) ? BLIP_OK : BLIP_ERROR_STOPPED
    }

    private func startConnecting() {
        begin()
        guard phase == .idle, let url else { return }
        phase = .connecting
        if let handler = settings.state {
            deliver(Event(.state(handler), value: Int64(BLIP_STATE_CONNECTING), connection: self))
        }
        guard phase == .connecting else { return }
        tell(BLIP_OBSERVE_WILL_CONNECT)
        if let setupFailure { return finish(setupFailure) }
        let attempt = ClientAttempt(url: url, configuration: configuration)
        self.attempt = attempt
        if configuration.connectTimeout < .max / 2 {
            attempt.deadline = loop.refreshNow() &+ configuration.connectTimeout
        }
        armTimer(after: configuration.connectTimeout)
        dial(attempt)
    }

    /// Makes a byte stream to where the attempt has come.
    func dial(_ attempt: ClientAttempt) {
        phase = .connecting
        attempt.body = nil
        attempt.requestsOnStream = 0
        let url = attempt.url
        runtimeHold.log(BLIP_LOG_INFO, "connection", "connecting to \(url.logged)")
        var plan: DialPlan
        do throws(Failure) {
            plan = try configuration.dial.plan(
                for: url, userAgent: configuration.userAgent, maximumHead: configuration.httpHead)
        } catch {
            return finish(error)
        }
        if let answer = attempt.proxyAnswer, answer.proxy == plan.proxy { plan.proxyCredentials = answer.credentials }
        let ask = settings.challenge == nil ? nil : { [self] in askForProxy($0, attempt) }
        dialer = Dialer(loop: loop, plan: plan, ask: ask) { [self] result in
            dialer = nil
            switch result {
            case .success(let stream): streamDidConnect(stream)
            case .failure(let failure): finish(failure)
            }
        }
    }

    private func streamDidConnect(_ stream: Transport.Stream) {
        guard phase == .connecting, let attempt else { return stream.close() }
        stream.handOver(to: self)
        self.stream = stream
        withInfo { $0.stream = stream }
        tell(BLIP_OBSERVE_CONNECTED)
        if let tls = attempt.tls {
            phase = .securing
            tell(BLIP_OBSERVE_WILL_SECURE)
            guard phase == .securing else { return }
            let url = attempt.url
            let chosen = settings.serverName?.string ?? configuration.tlsServerName
            let own = attempt.trail.isAtHome ? chosen : nil
            let name = own ?? (url.unixPath == nil ? url.host : "localhost")
            stream.startTLS(
                tls, serverName: name, isServer: false, asksProgram: settings.trust != nil, serverPort: url.port)
            stream.startReading()
        } else {
            stream.startReading()
            sendUpgrade()
        }
    }

    func sendUpgrade() {
        guard let attempt, let stream else { return }
        let url = attempt.url
        if !url.isWebSocket { return openStream() }
        phase = .upgrading
        tell(BLIP_OBSERVE_WILL_AUTHENTICATE)
        attempt.body = nil
        attempt.next = .undecided
        attempt.requestsOnStream += 1
        do {
            let handshake = try ClientHandshake(
                url: url, protocols: configuration.subprotocols, headers: attempt.headers(configuration.headers),
                authorization: authorization(attempt), cookies: cookies(for: url),
                userAgent: configuration.userAgent, nonce: Randomness.bytes(16))
            upgrade = Upgrade(
                parser: HTTPHeadParser(.response, maximum: configuration.httpHead), client: handshake)
        } catch {
            return finish(Failure(error))
        }
        stream.requestOutput()
    }

    /// The server's answer to the upgrade.
    private func handle(_ response: HTTPResponseHead, _ upgrade: Upgrade) {
        guard let client = upgrade.client, let attempt else { return }
        guard !goOn(after: response, attempt) else { return }
        switch client.check(response) {
        case .failure(let failure): finish(Failure(failure))
        case .success(let subprotocol):
            rememberHead(path: attempt.url.target, response.headers)
            tell(BLIP_OBSERVE_AUTHENTICATED)
            open(subprotocol: subprotocol)
        }
    }

    // MARK: Incoming

    /// Takes over an accepted socket. Loop thread.
    func takeOver(_ descriptor: Int32, from peer: SocketAddress? = nil) {
        begin()
        guard phase == .idle, listener?.isListening == true else {
            closeDescriptor(descriptor)
            return finish(nil)
        }
        let stream = Transport.Stream(loop: loop, descriptor: descriptor, delegate: self, acceptedFrom: peer)
        self.stream = stream
        // Who is refused before it is open shall have an address too.
        withInfo { $0.stream = stream }
        armTimer(after: configuration.connectTimeout)
        upgrade = Upgrade(parser: HTTPHeadParser(.request, maximum: configuration.httpHead))
        tell(BLIP_OBSERVE_CONNECTED)
        if let tls = configuration.tls {
            phase = .securing
            tell(BLIP_OBSERVE_WILL_SECURE)
            stream.startTLS(tls, serverName: nil, isServer: true, asksProgram: settings.trust != nil)
        } else {
            phase = .upgrading
        }
        stream.startReading()
        if phase == .upgrading, listener?.speaksWebSocket == false { acceptStream() }
    }

    /// A client's request to upgrade.
    private func handle(_ request: HTTPRequestHead, _ upgrade: Upgrade) {
        guard let listener else { return finish(Failure(BLIP_ERROR_CLOSED, "The listener was stopped.")) }
        admit(request, listener) { [self] in answer($0, upgrade, listener) }
    }

    /// The same, from a client that may ask.
    private func answer(_ request: HTTPRequestHead, _ upgrade: Upgrade, _ listener: Listener) {
        if let path = listener.metricsPath, path.utf8.elementsEqual(request.path.utf8) {
            return answerMetrics(request)
        }
        if showPages(request, upgrade, listener) || openDashboard(request, upgrade, listener) { return }
        switch ServerHandshake.decide(request, protocols: configuration.subprotocols, paths: listener.paths) {
        case .refuse(let status, let response, let text):
            refuse(response, Failure(BLIP_ERROR_HTTP, domain: "HTTP", code: Int64(status), text))
        case .accept(let subprotocol, let response):
            if refusesOrigin(request, listener) { return }
            upgrade.subprotocol = subprotocol
            upgrade.output = response
            rememberHead(path: request.pathAndQuery, request.headers)
            phase = .waitingForAccept
            tell(BLIP_OBSERVE_WILL_AUTHENTICATE)
            if let handler = listener.acceptHandler {
                present(request, handler, listener)
            } else {
                continueAfterAccept()
            }
        }
    }

    /// Answers a plain HTTP request with the runtime's figures, and ends.
    private func answerMetrics(_ request: HTTPRequestHead) {
        let isHead = request.method == "HEAD"
        guard !request.hasBody, isHead || request.method == "GET" else {
            let text = "Figures are got with GET, without a body."
            return refuse(
                ServerHandshake.refusal(status: 405, text: text, headers: [HTTPHeader("Allow", "GET, HEAD")]),
                Failure(BLIP_ERROR_HTTP, domain: "HTTP", code: 405, text))
        }
        let text = runtimeHold.metrics().text
        refuse(
            ServerHandshake.document(
                text.string, type: "text/plain; version=0.0.4; charset=utf-8", omitBody: isHead),
            Failure(BLIP_ERROR_HTTP, domain: "HTTP", code: 200, "A plain HTTP request for figures was answered."))
    }

    /// The program has seen the request; from any thread.
    func acceptDidSettle() {
        perform { [self] in
            if withInfo({ $0.decision })?.isWaiting != true { continueAfterAccept() }
        }
    }

    func continueAfterAccept() {
        guard phase == .waitingForAccept else { return }
        guard state < BLIP_STATE_CLOSING else {
            return refuse(
                ServerHandshake.refusal(status: 403, text: "The connection was refused."),
                Failure(BLIP_ERROR_CLOSED, domain: "HTTP", code: 403, "The connection was refused."))
        }
        if refusesByDecision() { return }
        tell(BLIP_OBSERVE_AUTHENTICATED)
        if isFramed { return carrierDidOpen() }
        if let page = upgrade?.page { return servePages(page) }
        if upgrade?.isDashboard == true, let dashboard = listener?.dashboard { becomeInternal(dashboard) }
        if let upgrade { open(subprotocol: upgrade.subprotocol) } else { openStream() }
        stream?.resumeReading()
    }

    /// Answers the upgrade with something else and ends.
    func refuse(_ response: [UInt8], _ failure: Failure) {
        guard let upgrade, let stream else { return finish(failure) }
        phase = .closing
        publish(BLIP_STATE_CLOSING)
        upgrade.output = response
        upgrade.endsAfterOutput = failure
        armTimer(after: configuration.closeTimeout)
        stream.requestOutput()
        // What still comes is thrown away; the peer's end is what is waited for.
        stream.resumeReading()
    }

    // MARK: Both

    /// The connection counts as alive from now on.
    func begin() {
        guard indexInContext < 0, phase != .closed else { return }
        context.add(self)
        if let attachments = runtimeHold.attachments { attach(attachments) }
        if runtimeHold.isStopped { finish(Failure(BLIP_ERROR_STOPPED, "The runtime was stopped.")) }
    }

    public func streamDidSecure(_ stream: Transport.Stream) {
        guard phase == .securing else { return }
        tell(BLIP_OBSERVE_SECURED)
        guard isIncoming else { return sendUpgrade() }
        phase = .upgrading
        if listener?.speaksWebSocket == false { acceptStream() }
    }

    public func stream(_ stream: Transport.Stream, needsTrust evidence: TrustEvidence) {
        guard let handler = settings.trust else { return stream.answerTrust(false) }
        deliver(Event(.trust(handler, TrustQuestion(self, evidence)), connection: self))
    }

    /// Takes the HTTP head off the bytes; how many were taken.
    func receiveHead(_ bytes: UnsafeMutableRawBufferPointer) -> Int {
        guard let upgrade else { return bytes.count }
        if let taken = skipBody(UnsafeRawBufferPointer(bytes)) { return taken }
        switch upgrade.parser.feed(UnsafeRawBufferPointer(bytes)) {
        case .incomplete: return 0
        case .request(let head, let consumed):
            handle(head, upgrade)
            return consumed
        case .response(let head, let consumed):
            if head.isInterim {
                upgrade.parser = HTTPHeadParser(.response, maximum: configuration.httpHead)
                return consumed
            }
            handle(head, upgrade)
            return consumed
        case .failed(let status, let text):
            if isIncoming {
                refuse(
                    ServerHandshake.refusal(status: status, text: text),
                    Failure(BLIP_ERROR_HTTP, domain: "HTTP", code: Int64(status), text))
            } else {
                finish(Failure(BLIP_ERROR_HTTP, domain: "HTTP", text))
            }
            return bytes.count
        }
    }

    func open(subprotocol: String, version known: ProtocolVersion? = nil) {
        guard let version = known ?? Configuration.version(of: subprotocol) else {
            return finish(Failure(BLIP_ERROR_SUBPROTOCOL, "The subprotocol \(subprotocol) is not known."))
        }
        self.version = version
        if !isIncoming { upgrade = nil }
        rememberAddresses()
        attempt = nil
        let text = configuration.text(of: subprotocol)
        withInfo {
            $0.subprotocol = text
            $0.version = Int32(version.rawValue)
        }
        countOpening()
        phase = .open
        startKeepAlive()
        openedAt = UInt32(truncatingIfNeeded: loop.now / 1_000_000_000)
        publish(BLIP_STATE_OPEN)
        runtimeHold.log(BLIP_LOG_INFO, "connection", "open, \(subprotocol)")
        let waiters = withInfo { info -> [Waiter] in
            defer { info.openWaiters = [] }
            return info.openWaiters
        }
        for waiter in waiters { waiter.signal(BLIP_OK) }
        tell(BLIP_OBSERVE_OPEN)
        if let handler = settings.open {
            deliver(Event(.open(handler), connection: self))
        } else {
            openDidSettle()
        }
        guard phase == .open else { return }
        let waiting = waitingToSend
        waitingToSend = []
        if !waiting.isEmpty, let engine = openSession()?.engine {
            for message in waiting { hand(message, to: engine) }
        }
        requestOutput()
    }

    func rememberHead(path: String, _ headers: HTTPHeaders) {
        let path = path == "/" ? Configuration.rootPath : Text(path)
        let head = HTTPHeadRecord(headers)
        withInfo {
            $0.path = path
            $0.head = head
        }
    }

    func rememberAddresses() {
        guard let stream else { return }
        // Behind a proxy that speaks TLS the stream may be secure although the connection is not.
        let usesTLS = attempt.map { $0.tls != nil } ?? (configuration.tls != nil)
        let isSecure = usesTLS && stream.isSecure
        guard isSecure else { return withInfo { $0.stream = stream } }
        let details = TLSDetails(stream)
        withInfo {
            // Its addresses are made to texts when they are asked for.
            $0.stream = stream
            $0.tls = details
        }
    }

    /// The open callback has been run. An accepted connection's HTTP head has served: many connections are idle, and it
    /// is the largest thing that they would hold.
    func openDidSettle() {
        guard isIncoming else { return }
        let old = withInfo { info -> (HTTPHeadRecord?, AcceptDecision?) in
            defer { (info.head, info.decision) = (nil, nil) }
            return (info.head, info.decision)
        }
        // Let go of behind the lock.
        withExtendedLifetime(old) {}
    }
}

extension Failure {
    init(_ failure: UpgradeFailure) {
        switch failure.kind {
        case .httpStatus(let status, _):
            self.init(BLIP_ERROR_HTTP_STATUS, domain: "HTTP", code: Int64(status), failure.text)
        case .subprotocol: self.init(BLIP_ERROR_SUBPROTOCOL, domain: "WebSocket", failure.text)
        case .limit: self.init(BLIP_ERROR_LIMIT, domain: "HTTP", failure.text)
        case .argument: self.init(BLIP_ERROR_ARGUMENT, failure.text)
        case .http: self.init(BLIP_ERROR_HTTP, domain: "HTTP", failure.text)
        }
    }
}
