import Transport
import WebSocketProtocol

/// Who may connect to a listener: its table of users, and the web pages that it serves.
///
/// Passwords are kept as hashes. Of credentials that were right a keyed hash is remembered, so that a client that comes
/// again is let in at once; wrong ones are never remembered.
final class ListenerAccess: Sendable {
    /// Credentials that are remembered at most; one of them makes room for a new one.
    static let maximumRemembered = 1024

    enum Verdict {
        /// Let in.
        case good(user: String)
        /// There are no credentials, or none of a kind that can be checked.
        case missing
        /// The password has to be compared with this hash; nothing is let in for a decoy.
        case unknown(user: String, SecretBytes, PasswordHash, isDecoy: Bool)
    }

    private let origins: OriginRules
    private let hosts: HostRules
    let passwords = PasswordLine()
    private let realm: String
    private let users: [String: PasswordHash]
    private let keyed: KeyedHash
    private let remembered = Locked<[[UInt8]: String]>([:])

    init(realm: String, users: [String: PasswordHash], origins: [String], hosts: [String]) {
        self.realm = realm
        self.users = users
        self.origins = OriginRules(origins)
        self.hosts = HostRules(hosts)
        keyed = KeyedHash(key: Randomness.bytes(32))
    }

    /// Whether a user has to be known.
    var hasUsers: Bool { !users.isEmpty }

    /// The header that says what is wanted (RFC 7617 §2).
    var challenge: HTTPHeader {
        HTTPHeader("WWW-Authenticate", "Basic realm=\(Self.quoted(realm)), charset=\"UTF-8\"")
    }

    static func quoted(_ text: String) -> String {
        var result = "\""
        for scalar in text.unicodeScalars {
            if scalar == "\"" || scalar == "\\" { result += "\\" }
            result.unicodeScalars.append(scalar)
        }
        return result + "\""
    }

    /// Whether the request is of no web page, or of one that may connect.
    func allowOrigin(of request: HTTPRequestHead, isSecure: Bool) -> Bool {
        guard origins.allow(request) else { return false }
        // "The same host" means little if the host has somebody else's name.
        guard origins.isEmpty, request["Origin"] != nil else { return true }
        return allowHost(of: request, isSecure: isSecure, isSensitive: true)
    }

    /// Whether a page may be asked for by the name that the request has.
    func allowHost(of request: HTTPRequestHead, isSecure: Bool, isSensitive: Bool) -> Bool {
        // The name in a certificate, or for which a browser keeps a password, is nobody else's.
        if hosts.isEmpty, isSecure || hasUsers || !isSensitive { return true }
        return hosts.allow(request, others: HostFacts.names)
    }

    /// Looks at what a request presents.
    func judge(_ request: HTTPRequestHead) -> Verdict {
        let values = request.all("Authorization")
        guard values.count == 1, let value = values.first,
            case .success(let credentials) = HTTPChallenge.parseCredentials(value),
            let (user, password) = BasicCredentials.read(credentials)
        else { return .missing }
        if let key = keyed.hash(user: user, password: password), let known = remembered.withLock({ $0[key] }),
            known == user
        {
            return .good(user: user)
        }
        if let hash = users[user] { return .unknown(user: user, password, hash, isDecoy: false) }
        // A name that nobody has takes as long as a wrong password.
        guard let decoy = users.first?.value else { return .missing }
        return .unknown(user: user, password, decoy, isDecoy: true)
    }

    /// Remembers credentials that were right.
    func remember(_ user: String, _ password: SecretBytes) {
        guard let key = keyed.hash(user: user, password: password) else { return }
        remembered.withLock { remembered in
            if remembered.count >= Self.maximumRemembered, let old = remembered.first?.key {
                remembered[old] = nil
            }
            remembered[key] = user
        }
    }
}
