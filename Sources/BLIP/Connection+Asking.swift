import BLIPProtocol
import CBLIP
import Transport
import WebSocketProtocol

/// The way of an outgoing connection through redirects and challenges, until a server agrees to the upgrade.
extension Connection {
    /// What goes into the next request's Authorization; a header of the program's own is left until it was refused.
    func authorization(_ attempt: ClientAttempt) -> SecretBytes? {
        let hasOwn = attempt.headers(configuration.headers).contains { $0.name.lowercased() == "authorization" }
        guard !hasOwn || attempt.authenticator.challenges > 0 else { return nil }
        return attempt.authenticator.header(method: "GET", uri: attempt.url.target, entropy: Randomness.bytes(16))
    }

    func cookies(for url: WebSocketURL) -> SecretBytes? {
        configuration.http.usesCookies ? runtimeHold.cookies(for: url) : nil
    }

    /// Looks whether an answer leads somewhere else than to an open connection or to its end; true: it is on the way.
    func goOn(after response: HTTPResponseHead, _ attempt: ClientAttempt) -> Bool {
        let hasChanged = configuration.http.usesCookies && runtimeHold.receiveCookies(response, from: attempt.url)
        switch attempt.redirect(response, hasChanged: hasChanged) {
        case .none: break
        case .refuse(let text):
            refused(response.status, text)
            return true
        case .follow(let url):
            follow(url, attempt)
            return true
        }
        guard response.status == 401 else { return false }
        authenticate(response, attempt)
        return true
    }

    private func refused(_ status: Int, _ text: String) {
        finish(Failure(BLIP_ERROR_HTTP_STATUS, domain: "HTTP", code: Int64(status), text))
    }

    // MARK: Redirects

    private func follow(_ url: WebSocketURL, _ attempt: ClientAttempt) {
        runtimeHold.log(BLIP_LOG_INFO, "connection", "redirected to \(url.logged)")
        do {
            attempt.tls = try context(for: url, attempt)
        } catch {
            return finish(Failure(error))
        }
        reconnect(attempt)
    }

    /// TLS for where a redirect leads. The certificate of this side is shown to its own host only.
    private func context(for url: WebSocketURL, _ attempt: ClientAttempt) throws(TransportError) -> TLSContext? {
        guard url.isSecure else { return nil }
        let isOwnHost = url.host == attempt.trail.start.host
        if isOwnHost, let tls = configuration.tls { return tls }
        return try configuration.makeTLS?(isOwnHost)
    }

    private func reconnect(_ attempt: ClientAttempt) {
        guard configuration.dial.adopted == nil else {
            let text = "The server wants another connection, but this one is over a descriptor that was taken over."
            return finish(Failure(BLIP_ERROR_UNSUPPORTED, domain: "HTTP", text))
        }
        stream?.close()
        stream = nil
        upgrade = nil
        dial(attempt)
    }

    // MARK: Challenges

    private func authenticate(_ response: HTTPResponseHead, _ attempt: ClientAttempt) {
        attempt.body = HTTPBodySkipper(response)
        switch attempt.authenticator.receive(response) {
        case .malformed(let text): refused(401, "\(text) (HTTP status 401)")
        case .retry:
            attempt.next = .request
            proceedSoon()
        case .unanswered(let list, let text):
            guard let handler = settings.challenge, attempt.authenticator.challenges <= ClientAttempt.maximumChallenges
            else { return refused(401, "\(text) (HTTP status 401)") }
            let challenge = Challenge(
                list, trouble: Failure(BLIP_ERROR_HTTP_STATUS, domain: "HTTP", code: 401, "\(text) (HTTP status 401)"),
                host: attempt.url.hostHeader, proxy: nil, attempts: attempt.authenticator.challenges, connection: self)
            attempt.next = .undecided
            ask(handler, challenge, attempt)
        }
    }

    /// Asks the program for what a proxy wants; false: it is not to be asked.
    func askForProxy(_ question: ProxyQuestion, _ attempt: ClientAttempt) -> Bool {
        attempt.proxyChallenges += 1
        guard let handler = settings.challenge, attempt.proxyChallenges <= ClientAttempt.maximumChallenges else {
            return false
        }
        let host = ProxyTarget(host: question.proxy.host, port: question.proxy.port).authority
        let challenge = Challenge(
            question.list, trouble: question.failure, host: host, proxy: question.proxy,
            attempts: max(attempt.proxyChallenges, question.challenges), connection: self)
        ask(handler, challenge, attempt)
        return true
    }

    private func ask(_ handler: Handler<blip_challenge_fn>, _ challenge: Challenge, _ attempt: ClientAttempt) {
        attempt.challenge = challenge
        // The program may ask a person: its time does not count.
        let left = attempt.deadline == .max ? .max : attempt.deadline &- min(attempt.deadline, loop.refreshNow())
        attempt.deadline = left
        if let timer { loop.cancel(timer) }
        runtimeHold.log(BLIP_LOG_DEBUG, "connection", "asking the program to authenticate")
        deliver(Event(.challenge(handler, challenge), connection: self))
    }

    /// The program has answered, or will not. Loop thread.
    func challengeDidEnd(_ challenge: Challenge, _ answer: Challenge.Answer) {
        guard let attempt, attempt.challenge === challenge else { return }
        attempt.challenge = nil
        if attempt.deadline != .max {
            attempt.deadline &+= loop.refreshNow()
            armTimer(at: attempt.deadline)
        }
        if let proxy = challenge.proxy { return answerProxy(proxy, challenge, answer, attempt) }
        switch answer {
        case .cancel: return finish(challenge.trouble)
        case .header(let value): attempt.authenticator.answer(header: value)
        case .credentials(let credentials): _ = attempt.authenticator.answer(credentials, to: challenge.list)
        }
        attempt.next = .request
        proceedSoon()
    }

    private func answerProxy(
        _ proxy: ProxyURL, _ challenge: Challenge, _ answer: Challenge.Answer, _ attempt: ClientAttempt
    ) {
        switch answer {
        case .cancel: finish(challenge.trouble)
        case .header(let value): dialer?.answer { $0.answer(header: value) }
        case .credentials(let credentials):
            attempt.proxyAnswer = (proxy, credentials)
            dialer?.answer { $0.answer(credentials, to: challenge.list) }
        }
    }

    /// Not inside the callback, or the delivery of bytes, that has caused it: bytes behind the answer come first.
    private func proceedSoon() {
        loop.post { [self] in if let attempt = self.attempt { proceed(attempt) } }
    }

    /// Requests again as soon as the answer before is out of the way.
    private func proceed(_ attempt: ClientAttempt) {
        guard case .request = attempt.next, phase == .upgrading || phase == .connecting, dialer == nil else { return }
        guard stream != nil, let body = attempt.body else {
            attempt.next = .undecided
            return reconnect(attempt)
        }
        switch body.state {
        case .reading: break
        case .done: sendUpgrade()
        case .unusable:
            attempt.next = .undecided
            reconnect(attempt)
        }
    }

    /// Reads over the body of an answer; nil: no such body is being read.
    func skipBody(_ bytes: UnsafeRawBufferPointer) -> Int? {
        guard let attempt, var body = attempt.body else { return nil }
        let taken = body.feed(bytes)
        attempt.body = body
        // What follows an answer without having been asked for is no answer to the next request.
        if body.state == .done, taken < bytes.count { attempt.body = nil }
        if attempt.body == nil || body.state == .unusable {
            stream?.close()
            stream = nil
            proceed(attempt)
            return bytes.count
        }
        if body.state == .done { proceedSoon() }
        return taken
    }

    /// The byte stream has ended; true: that is no reason for the connection to end.
    func streamDidEndOnTheWay() -> Bool {
        guard let attempt, phase == .upgrading else { return false }
        if attempt.body != nil {
            stream = nil
            attempt.body = nil
            proceed(attempt)
            return true
        }
        // A server may end an idle connection in the moment in which it is used again (RFC 9112 §9.3.1).
        guard attempt.requestsOnStream > 1, let upgrade, upgrade.parser.isAtStart else { return false }
        reconnect(attempt)
        return true
    }
}
