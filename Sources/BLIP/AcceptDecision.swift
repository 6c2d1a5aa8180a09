import CBLIP
import Transport
import WebSocketProtocol

/// What a program has been shown of a client that wants in, and what it decides about it; any thread.
final class AcceptDecision: Sendable {
    private struct State {
        var isDeferred = false
        var isDecided = false
        var refusal: (status: Int, text: String)?
        var headers: [HTTPHeader] = []
    }

    private let state = Locked(State())
    private let method: String
    private let target: String
    private let credentials: HTTPChallenge?
    let scheme: Text?
    /// The user name that the client claims.
    let user: Text?
    /// A password or a token.
    let secret: Text?
    private let parameters: [(name: String, value: Text)]

    init(_ request: HTTPRequestHead?) {
        method = request?.method ?? ""
        target = request?.target ?? ""
        let values = request?.all("Authorization") ?? []
        guard values.count == 1, let value = values.first,
            case .success(let read) = HTTPChallenge.parseCredentials(value)
        else {
            (credentials, scheme, user, secret) = (nil, nil, nil, nil)
            parameters = []
            return
        }
        credentials = read
        scheme = Text(read.scheme)
        parameters = read.parameters.map { ($0.name, Text($0.value)) }
        switch read.scheme {
        case "basic":
            let basic = BasicCredentials.read(read)
            user = basic.map { Text($0.user) }
            secret = basic.map { Text($0.password.bytes) }
        case "digest":
            user = DigestChallenge.user(of: read).map { Text($0) }
            secret = nil
        default:
            user = nil
            secret = read.token68.map { Text($0) }
        }
    }

    deinit { secret?.wipe() }

    /// A parameter of the credentials.
    func parameter(_ name: String) -> Text? {
        let name = name.lowercased()
        return parameters.first { $0.name == name }?.value
    }

    /// Whether the client has this password; nil: it has presented neither Basic nor Digest.
    func check(_ password: UnsafeRawBufferPointer) -> Bool? {
        guard let credentials else { return nil }
        let password = SecretBytes(password)
        switch credentials.scheme {
        case "basic": return BasicCredentials.read(credentials)?.password.equals(password) ?? false
        case "digest":
            return DigestChallenge.check(credentials, password: password, method: method, target: target)
        default: return nil
        }
    }

    // MARK: Deciding

    var isWaiting: Bool { state.withLock { $0.isDeferred && !$0.isDecided } }
    var refusal: (status: Int, text: String)? { state.withLock { $0.refusal } }
    var headers: [HTTPHeader] { state.withLock { $0.headers } }

    /// The decision will come later.
    func postpone() -> blip_status {
        state.withLock { state in
            guard !state.isDecided else { return BLIP_ERROR_STATE }
            state.isDeferred = true
            return BLIP_OK
        }
    }

    func add(_ header: HTTPHeader) -> blip_status {
        state.withLock { state in
            guard !state.isDecided else { return BLIP_ERROR_STATE }
            guard state.headers.count < 32 else { return BLIP_ERROR_LIMIT }
            state.headers.append(header)
            return BLIP_OK
        }
    }

    /// Decides, once; with a status and a text: against the client.
    func decide(_ refusal: (status: Int, text: String)?) -> blip_status {
        state.withLock { state in
            guard !state.isDecided else { return BLIP_ERROR_STATE }
            state.isDecided = true
            state.refusal = refusal
            return BLIP_OK
        }
    }
}
