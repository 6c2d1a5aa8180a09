import Testing

@testable import WebSocketProtocol

@Suite("Authenticator")
struct HTTPAuthenticatorTests {
    private let password = HTTPCredentials.password(user: "u", SecretBytes("p"))
    private let entropy = [UInt8](repeating: 0xAB, count: 16)

    private func asked(_ values: String..., status: Int = 401) -> HTTPResponseHead {
        HTTPResponseHead(
            status: status, reason: "",
            headers: HTTPHeaders(
                values.map { HTTPHeader(status == 407 ? "Proxy-Authenticate" : "WWW-Authenticate", $0) }))
    }

    private func next(_ authenticator: inout HTTPAuthenticator) -> String? {
        authenticator.header(method: "GET", uri: "/", entropy: entropy)
            .map { String(decoding: $0.bytes, as: UTF8.self) }
    }

    private func isUnanswered(_ decision: HTTPAuthenticator.Decision, _ words: String) -> Bool {
        guard case .unanswered(_, let text) = decision else { return false }
        return text.contains(words)
    }

    @Test func preemptiveBasic() {
        var one = HTTPAuthenticator(credentials: password, isPreemptive: true)
        #expect(next(&one) == "Basic dTpw")
        #expect(isUnanswered(one.receive(asked("Basic realm=r")), "refuses the user name or password"))
        #expect(one.challenges == 1)
    }

    @Test func basicOnChallenge() {
        var one = HTTPAuthenticator(credentials: password, isPreemptive: false)
        #expect(next(&one) == nil)
        #expect(one.receive(asked("Negotiate", "Basic realm=r")) == .retry)
        #expect(next(&one) == "Basic dTpw")
        #expect(isUnanswered(one.receive(asked("Basic realm=r")), "refuses"))
    }

    @Test func digestIsPreferred() throws {
        var one = HTTPAuthenticator(credentials: password, isPreemptive: true)
        let challenges = asked(
            "Basic realm=r, Digest realm=r, nonce=a, qop=auth, algorithm=MD5",
            "Digest realm=r, nonce=b, qop=auth, algorithm=SHA-256", "Digest realm=r, nonce=c, algorithm=WHIRL")
        #expect(one.receive(challenges) == .retry)
        let header = try #require(next(&one))
        #expect(header.contains("SHA-256") && header.contains("nonce=\"b\"") && header.contains("nc=00000001"))
        #expect(try #require(next(&one)).contains("nc=00000002"))
        #expect(isUnanswered(one.receive(challenges), "refuses"))
    }

    @Test func staleNoncesAreFollowedForAWhile() throws {
        var one = HTTPAuthenticator(credentials: password, isPreemptive: false)
        #expect(one.receive(asked("Digest realm=r, nonce=n0, qop=auth")) == .retry)
        for round in 1...3 {
            _ = next(&one)
            #expect(one.receive(asked("Digest realm=r, nonce=n\(round), qop=auth, stale=true")) == .retry)
            #expect(try #require(next(&one)).contains("nc=00000001"))
        }
        #expect(isUnanswered(one.receive(asked("Digest realm=r, nonce=n9, qop=auth, stale=TRUE")), "refuses"))
    }

    /// New realms, and schemes that take turns, do not look like a refusal.
    @Test(arguments: [
        ["Digest realm=r%, nonce=n%, qop=auth"], ["Digest realm=r, nonce=n%, qop=auth", "Basic realm=r"],
    ])
    func challengesComeToAnEnd(challenges: [String]) {
        var one = HTTPAuthenticator(credentials: password, isPreemptive: false)
        var rounds = 0
        while rounds < 100 {
            let challenge = challenges[rounds % challenges.count]
            let text = challenge.split(separator: "%", omittingEmptySubsequences: false).joined(separator: "\(rounds)")
            guard one.receive(asked(text)) == .retry else { break }
            _ = next(&one)
            rounds += 1
        }
        #expect((1...20).contains(rounds))
        // What the program answers counts anew.
        let isAnswered = one.answer(password, to: [HTTPChallenge(scheme: "basic")])
        #expect(isAnswered)
    }

    @Test func staleWithTheSameNonceIsARefusal() {
        var one = HTTPAuthenticator(credentials: password, isPreemptive: false)
        #expect(one.receive(asked("Digest realm=r, nonce=n, qop=auth")) == .retry)
        #expect(isUnanswered(one.receive(asked("Digest realm=r, nonce=n, qop=auth, stale=true")), "refuses"))
    }

    @Test func tokens() {
        var one = HTTPAuthenticator(credentials: .token(SecretBytes("t")), isPreemptive: false)
        #expect(next(&one) == "Bearer t")
        #expect(isUnanswered(one.receive(asked("Bearer error=\"invalid_token\"")), "refuses the token"))
        #expect(isUnanswered(one.receive(asked("Basic realm=r")), "not a token"))
    }

    @Test func malformed() {
        var one = HTTPAuthenticator(credentials: password, isPreemptive: true)
        guard case .malformed(let text) = one.receive(asked("Basic realm=\"")) else {
            Issue.record("it was read")
            return
        }
        #expect(text.contains("WWW-Authenticate"))
        guard case .malformed = one.receive(HTTPResponseHead(status: 401, reason: "", headers: HTTPHeaders())) else {
            Issue.record("it was read")
            return
        }
    }

    @Test func answersOfTheProgram() {
        var one = HTTPAuthenticator(credentials: nil, isPreemptive: false, isProxy: true)
        guard case .unanswered(let list, _) = one.receive(asked("Basic realm=r", status: 407)) else {
            Issue.record("no challenge")
            return
        }
        #expect(one.headerName == "Proxy-Authorization")
        #expect(one.answer(.token(SecretBytes("a b")), to: list) == false)
        #expect(one.answer(password, to: list) == true)
        #expect(next(&one) == "Basic dTpw")
        one.answer(header: SecretBytes("Custom x"))
        #expect(next(&one) == "Custom x")
        guard case .unanswered = one.receive(asked("Custom y", status: 407)) else {
            Issue.record("no second round")
            return
        }
        #expect(one.answer(password, to: [HTTPChallenge(scheme: "custom")]) == false)
    }
}
