import COpenSSL

/// A challenge of the Digest scheme, and what answers it (RFC 7616).
public struct DigestChallenge: Sendable, Equatable {
    /// The protection space.
    public let realm: String
    /// The server's nonce.
    public let nonce: String
    /// The nonce of the request before was too old; the password was right (RFC 7616 §3.3).
    public let isStale: Bool

    let algorithm: DigestAlgorithm
    let isSession: Bool
    /// Protection of the request line; without it the older form of RFC 2069 is used.
    let hasQuality: Bool
    let opaque: String?
    let hidesUser: Bool

    /// Reads a challenge whose scheme is "digest".
    /// - Throws: what is missing, or what this library does not do.
    public init(_ challenge: HTTPChallenge) throws(HTTPChallengeFailure) {
        guard challenge.scheme == "digest", challenge.token68 == nil else {
            throw HTTPChallengeFailure("it is no Digest challenge")
        }
        guard let realm = challenge["realm"] else { throw HTTPChallengeFailure("Digest without a realm") }
        guard let nonce = challenge["nonce"], !nonce.isEmpty else {
            throw HTTPChallengeFailure("Digest without a nonce")
        }
        let (algorithm, isSession) = try Self.algorithm(challenge["algorithm"])
        if let list = challenge["qop"] {
            let options = HTTPHeaders([HTTPHeader("qop", list)])
            guard options.contains("auth", in: "qop") else {
                throw HTTPChallengeFailure("Digest that protects bodies (only qop=auth is supported)")
            }
            hasQuality = true
        } else {
            guard !isSession else { throw HTTPChallengeFailure("Digest for a session without qop") }
            hasQuality = false
        }
        self.realm = realm
        self.nonce = nonce
        self.algorithm = algorithm
        self.isSession = isSession
        opaque = challenge["opaque"]
        isStale = challenge["stale"].map { HTTPSyntax.equal($0, "true") } ?? false
        hidesUser = Self.hidesUser(challenge)
    }

    private static func hidesUser(_ challenge: HTTPChallenge) -> Bool {
        challenge["userhash"].map { HTTPSyntax.equal($0, "true") } ?? false
    }

    private static func algorithm(_ name: String?) throws(HTTPChallengeFailure) -> (DigestAlgorithm, Bool) {
        var bytes = (name ?? "md5").utf8.map { HTTPSyntax.lowercased($0) }
        let isSession = bytes.count > 5 && bytes.suffix(5).elementsEqual("-sess".utf8)
        if isSession { bytes.removeLast(5) }
        guard let algorithm = DigestAlgorithm(rawValue: String(decoding: bytes, as: UTF8.self)) else {
            throw HTTPChallengeFailure("Digest with an algorithm other than SHA-256, SHA-512-256 and MD5")
        }
        return (algorithm, isSession)
    }

    /// The better one is the larger.
    var strength: Int { algorithm.strength }

    /// The value of an Authorization header for one request; nil: OpenSSL refuses the algorithm, or something cannot
    /// be sent.
    /// - Parameters:
    ///   - method: of the request, such as "GET".
    ///   - uri: its target, as it is sent.
    ///   - count: how many requests this nonce was used for, this one included.
    ///   - clientNonce: unpredictable letters and digits; the same for all requests with this nonce.
    public func header(
        user: String, password: SecretBytes, method: String, uri: String, count: UInt32, clientNonce: String
    ) -> SecretBytes? {
        let userBytes = Array(user.utf8)
        guard !userBytes.contains(where: BasicCredentials.isControl), !uri.utf8.contains(UInt8(ascii: "\"")) else {
            return nil
        }
        let digits = String(count, radix: 16)
        let number = String(repeating: "0", count: max(0, 8 - digits.utf8.count)) + digits
        guard
            let response = response(
                user: userBytes, password: password, method: method, uri: uri, number: number,
                clientNonce: clientNonce)
        else { return nil }
        var fields = ""
        if hidesUser {
            guard let hidden = algorithm.hash(userBytes, Array(realm.utf8)) else { return nil }
            fields += "username=\"\(String(decoding: hidden, as: UTF8.self))\""
        } else if userBytes.allSatisfy({ $0 < 0x80 }) {
            fields += "username=\(Self.quoted(user))"
        } else {
            fields += "username*=UTF-8''\(WebSocketURLReader.encoded(user))"
        }
        fields += ", realm=\(Self.quoted(realm)), nonce=\(Self.quoted(nonce)), uri=\"\(uri)\""
        fields += ", algorithm=\(algorithm.name)\(isSession ? "-sess" : "")"
        if hasQuality { fields += ", qop=auth, nc=\(number), cnonce=\"\(clientNonce)\"" }
        fields += ", response=\"\(String(decoding: response, as: UTF8.self))\""
        if let opaque { fields += ", opaque=\(Self.quoted(opaque))" }
        if hidesUser { fields += ", userhash=true" }
        let header = "Digest " + fields
        guard HTTPHeader("Authorization", header).isValid else { return nil }
        return SecretBytes(header)
    }

    private func response(
        user: [UInt8], password: SecretBytes, method: String, uri: String, number: String, clientNonce: String
    ) -> [UInt8]? {
        Self.response(
            algorithm, isSession: isSession, hasQuality: hasQuality, user: user, realm: realm, password: password,
            nonce: nonce, method: method, uri: uri, number: number, clientNonce: clientNonce)
    }

    /// RFC 7616 §3.4.1.
    private static func response(
        _ algorithm: DigestAlgorithm, isSession: Bool, hasQuality: Bool, user: [UInt8], realm: String,
        password: SecretBytes, nonce: String, method: String, uri: String, number: String, clientNonce: String
    ) -> [UInt8]? {
        let realm = Array(realm.utf8)
        let plain = user.withUnsafeBytes { user in
            realm.withUnsafeBytes { realm in algorithm.hash([user, realm, password.bytes]) }
        }
        guard var secret = plain else { return nil }
        defer { secret.wipe() }
        let nonce = Array(nonce.utf8)
        let own = Array(clientNonce.utf8)
        if isSession {
            guard let session = algorithm.hash(secret, nonce, own) else { return nil }
            secret.wipe()
            secret = session
        }
        guard let request = algorithm.hash(Array(method.utf8), Array(uri.utf8)) else { return nil }
        return hasQuality
            ? algorithm.hash(secret, nonce, Array(number.utf8), own, Array("auth".utf8), request)
            : algorithm.hash(secret, nonce, request)
    }

    /// Whether credentials that a client has sent were made with this password, for a request with this method and
    /// target. That the nonce is one of the server's own, and not used too often, is for the caller to know.
    public static func check(
        _ credentials: HTTPChallenge, password: SecretBytes, method: String, target: String
    ) -> Bool {
        guard credentials.scheme == "digest", let user = user(of: credentials), let realm = credentials["realm"],
            let nonce = credentials["nonce"], let uri = credentials["uri"], let given = credentials["response"],
            HTTPSyntax.identical(uri, target), let (algorithm, isSession) = try? algorithm(credentials["algorithm"])
        else { return false }
        var number = ""
        var clientNonce = ""
        let hasQuality = credentials["qop"] != nil
        if hasQuality {
            guard let quality = credentials["qop"], HTTPSyntax.equal(quality, "auth"),
                let count = credentials["nc"], let own = credentials["cnonce"], !own.isEmpty
            else { return false }
            number = count
            clientNonce = own
        } else if isSession {
            return false
        }
        guard
            let expected = response(
                algorithm, isSession: isSession, hasQuality: hasQuality, user: Array(user.utf8), realm: realm,
                password: password, nonce: nonce, method: method, uri: uri, number: number, clientNonce: clientNonce)
        else { return false }
        return SecretBytes(expected).equals(SecretBytes(given.utf8.map { HTTPSyntax.lowercased($0) }))
    }

    /// Who credentials of the Digest scheme are for; nil if they do not say, or hide it.
    public static func user(of credentials: HTTPChallenge) -> String? {
        guard credentials.scheme == "digest", !hidesUser(credentials) else { return nil }
        if let plain = credentials["username"] { return credentials["username*"] == nil ? plain : nil }
        guard let encoded = credentials["username*"] else { return nil }
        let bytes = Array(encoded.utf8)
        guard bytes.count >= 7, HTTPSyntax.equal(String(decoding: bytes.prefix(7), as: UTF8.self), "UTF-8''") else {
            return nil
        }
        return URLReference.decoded(bytes[7...])
    }

    private static func quoted(_ text: String) -> String {
        var bytes: [UInt8] = [UInt8(ascii: "\"")]
        for byte in text.utf8 {
            if byte == UInt8(ascii: "\"") || byte == UInt8(ascii: "\\") { bytes.append(UInt8(ascii: "\\")) }
            bytes.append(byte)
        }
        bytes.append(UInt8(ascii: "\""))
        return String(decoding: bytes, as: UTF8.self)
    }
}
