/// The client's side of HTTP authentication with one server or one proxy (RFC 9110 §11): what to send with the next
/// request, and what to make of a 401 or 407.
///
/// Overview: ask `header` for the value to send; give each 401 (of a proxy: 407) to `receive`; it says whether to
/// request again, or what the trouble is. `answer` takes what the program gives for one challenge.
///
/// Function: of several challenges the strongest is answered: Digest before Basic, of Digest the better hash. A
/// challenge that comes again after its answer means that the answer was wrong, unless it is a Digest challenge that
/// calls the nonce stale. A server that always asks for something else is not followed for ever.
public struct HTTPAuthenticator: Sendable {
    /// What a challenge leads to.
    public enum Decision: Sendable, Equatable {
        /// Request again, with `header`.
        case retry
        /// What there is does not answer it; the program may know more. The text says what the trouble is.
        case unanswered([HTTPChallenge], String)
        /// The challenge cannot be read; the text says why.
        case malformed(String)
    }

    private enum Answer: Sendable {
        case basic(SecretBytes)
        case digest(DigestChallenge, user: String, SecretBytes)
        case fixed(SecretBytes)
    }

    /// How often what there is may be sent in another way.
    private static let maximumRetries = 8

    /// Whether it speaks with a proxy.
    public let isProxy: Bool
    /// How many challenges have come.
    public private(set) var challenges = 0

    private var credentials: HTTPCredentials?
    private var current: Answer?
    private var nonceCount: UInt32 = 0
    private var clientNonce = ""
    private var staleNonces = 0
    private var retries = 0

    /// - Parameters:
    ///   - credentials: what there is from the start; nil: nothing.
    ///   - isPreemptive: send a password by the Basic scheme before it is asked for. Tokens always are.
    ///   - isProxy: the headers are those of a proxy.
    public init(credentials: HTTPCredentials?, isPreemptive: Bool, isProxy: Bool = false) {
        self.isProxy = isProxy
        self.credentials = credentials
        switch credentials {
        case .password(let user, let password) where isPreemptive:
            current = BasicCredentials.header(user: user, password: password).map { .basic($0) }
        case .token(let token): current = BearerToken.header(token).map { .fixed($0) }
        default: break
        }
    }

    /// The name of the header that `header` is for.
    public var headerName: String { isProxy ? "Proxy-Authorization" : "Authorization" }

    /// What to send with the next request; nil: no such header. Each call counts as a request.
    /// - Parameters:
    ///   - method: of the request: "GET", of a proxy "CONNECT".
    ///   - uri: the request's target, as it is sent.
    ///   - entropy: 16 fresh random bytes.
    public mutating func header(method: String, uri: String, entropy: [UInt8]) -> SecretBytes? {
        switch current {
        case nil: return nil
        case .basic(let value), .fixed(let value): return value
        case .digest(let challenge, let user, let password):
            if nonceCount == 0 { clientNonce = Hexadecimal.encode(entropy) }
            nonceCount &+= 1
            return challenge.header(
                user: user, password: password, method: method, uri: uri, count: nonceCount, clientNonce: clientNonce)
        }
    }

    /// What to do on a 401, or on a proxy's 407.
    public mutating func receive(_ response: HTTPResponseHead) -> Decision {
        challenges += 1
        let name = isProxy ? "Proxy-Authenticate" : "WWW-Authenticate"
        let whose = isProxy ? "the proxy" : "the server"
        let values = response.all(name)
        guard !values.isEmpty else {
            return .malformed("\(whose) wants authentication but does not say how: no \(name)")
        }
        let list: [HTTPChallenge]
        switch HTTPChallenge.parse(values) {
        case .success(let all): list = all
        case .failure(let failure): return .malformed("\(whose)'s \(name) cannot be read: \(failure.text)")
        }
        return decide(list, whose)
    }

    private mutating func decide(_ list: [HTTPChallenge], _ whose: String) -> Decision {
        let schemes = HTTPSyntax.quoted(list.map(\.scheme).joined(separator: ", "))
        switch credentials {
        case nil: return .unanswered(list, "\(whose) asks for authentication (\(schemes)), and none was given")
        case .token:
            let text =
                list.contains { $0.scheme == "bearer" } ? "refuses the token" : "asks for \(schemes), not a token"
            return .unanswered(list, "\(whose) \(text)")
        case .password(let user, let password):
            retries += 1
            guard retries <= Self.maximumRetries else {
                return .unanswered(list, "\(whose) asks for the password again and again (\(schemes))")
            }
            var trouble = ""
            var best: DigestChallenge?
            for challenge in list where challenge.scheme == "digest" {
                do throws(HTTPChallengeFailure) {
                    let digest = try DigestChallenge(challenge)
                    if digest.strength > best?.strength ?? 0 { best = digest }
                } catch {
                    trouble = ": \(error.text)"
                }
            }
            if let best { return answer(best, user, password, list, whose) }
            if list.contains(where: { $0.scheme == "basic" }) {
                if case .basic = current { return .unanswered(list, "\(whose) refuses the user name or password") }
                guard let value = BasicCredentials.header(user: user, password: password) else {
                    return .unanswered(list, "a user name with a colon, or a control character, cannot be sent")
                }
                current = .basic(value)
                return .retry
            }
            return .unanswered(list, "\(whose) asks for \(schemes), not for a password" + trouble)
        }
    }

    private mutating func answer(
        _ challenge: DigestChallenge, _ user: String, _ password: SecretBytes, _ list: [HTTPChallenge],
        _ whose: String
    ) -> Decision {
        if case .digest(let last, _, _) = current, last.realm == challenge.realm {
            guard challenge.isStale, challenge.nonce != last.nonce, staleNonces < 3 else {
                return .unanswered(list, "\(whose) refuses the user name or password")
            }
            staleNonces += 1
        }
        current = .digest(challenge, user: user, password)
        nonceCount = 0
        return .retry
    }

    /// Goes on with what the program gives for the challenge that came last.
    /// - Returns: whether there is something to send for it.
    public mutating func answer(_ new: HTTPCredentials, to list: [HTTPChallenge]) -> Bool {
        credentials = new
        current = nil
        staleNonces = 0
        retries = 0
        switch new {
        case .token(let token):
            guard let value = BearerToken.header(token) else { return false }
            current = .fixed(value)
            return true
        case .password: return decide(list, "") == .retry
        }
    }

    /// Goes on with a value that the program has made, for the next request alone or for all.
    public mutating func answer(header: SecretBytes) {
        current = .fixed(header)
        credentials = nil
    }
}
