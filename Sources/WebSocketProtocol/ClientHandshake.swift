/// The client's side of the upgrade (RFC 6455 §4.1).
public struct ClientHandshake: Sendable {
    /// The request's bytes, ready to send; they may hold secrets.
    public private(set) var request: [UInt8]
    /// What was offered, first preferred.
    public let protocols: [String]

    private let accept: String

    /// Writes the request.
    ///
    /// The user name and password of the URL go into an Authorization header (RFC 7617) unless there is one already. A
    /// Host header among `headers` takes the place of the URL's.
    /// - Parameters:
    ///   - url: what to connect to.
    ///   - protocols: subprotocols to offer, first preferred; at least one, each once.
    ///   - headers: further lines, in their order.
    ///   - authorization: the value of Authorization, in the place of one among `headers`.
    ///   - cookies: the value of Cookie, behind that of one among `headers`.
    ///   - userAgent: the value of User-Agent; nil: no such line.
    ///   - nonce: 16 fresh random bytes.
    /// - Throws: kind `.argument` if something given cannot be sent.
    public init(
        url: WebSocketURL, protocols: [String], headers: [HTTPHeader] = [], authorization: SecretBytes? = nil,
        cookies: SecretBytes? = nil, userAgent: String? = nil, nonce: [UInt8]
    ) throws(UpgradeFailure) {
        guard nonce.count == 16 else {
            throw UpgradeFailure(.argument, "the nonce of the upgrade has \(nonce.count) bytes instead of 16")
        }
        guard !protocols.isEmpty else { throw UpgradeFailure(.argument, "no subprotocol to offer") }
        for (index, name) in protocols.enumerated() {
            guard Self.isValidProtocol(name) else {
                throw UpgradeFailure(
                    .argument, "subprotocol \(HTTPSyntax.quoted(name)) is not a token of letters, digits and -+._")
            }
            guard !protocols[..<index].contains(name) else {
                throw UpgradeFailure(.argument, "subprotocol \(HTTPSyntax.quoted(name)) is offered twice")
            }
        }
        let key = Base64.text(nonce)
        guard let accept = HandshakeDigest.accept(key: key) else {
            throw UpgradeFailure(.argument, "OpenSSL does not provide SHA-1, which the WebSocket upgrade needs")
        }
        self.accept = accept
        self.protocols = protocols

        let given = HTTPHeaders(headers)
        guard given.all("Host").count <= 1 else { throw UpgradeFailure(.argument, "more than one Host header") }
        var lines = [
            HTTPHeader("Host", given["Host"] ?? url.hostHeader),
            HTTPHeader("Connection", "Upgrade"),
            HTTPHeader("Upgrade", "websocket"),
            HTTPHeader("Sec-WebSocket-Version", "13"),
            HTTPHeader("Sec-WebSocket-Key", key),
            // Without spaces, as deployed clients send it: not every server trims.
            HTTPHeader("Sec-WebSocket-Protocol", protocols.joined(separator: ",")),
        ]
        if let userAgent, given["User-Agent"] == nil { lines.append(HTTPHeader("User-Agent", userAgent)) }
        var authorization = authorization
        if authorization == nil, let user = url.user, given["Authorization"] == nil {
            authorization = BasicCredentials.header(user: user, password: SecretBytes(url.password ?? ""))
            guard authorization != nil else {
                throw UpgradeFailure(.argument, "a user name with a colon cannot be sent (RFC 7617)")
            }
        }
        let rest = headers.filter { header in
            if HTTPSyntax.equal(header.name, "Host") { return false }
            if cookies != nil, HTTPSyntax.equal(header.name, "Cookie") { return false }
            return authorization == nil || !HTTPSyntax.equal(header.name, "Authorization")
        }
        for header in headers where Self.isReserved(header.name) {
            throw UpgradeFailure(
                .argument, "header \(HTTPSyntax.quoted(header.name)) is made by the library and cannot be set")
        }
        var output = Array("GET \(url.target) HTTP/1.1\r\n".utf8)
        for line in lines { try Self.append(line, to: &output) }
        // Memory that is outgrown would keep a copy of what is appended now.
        let others = headers.reduce(256) { $0 + $1.name.utf8.count + $1.value.utf8.count + 4 }
        output.reserveCapacity(output.count + others + (authorization?.count ?? 0) + (cookies?.count ?? 0))
        if let authorization {
            output += "Authorization: ".utf8
            output += authorization.bytes
            output += [0x0D, 0x0A]
        }
        if let cookies {
            output += "Cookie: ".utf8
            for own in given.all("Cookie") {
                try Self.check(HTTPHeader("Cookie", own))
                output += own.utf8
                output += "; ".utf8
            }
            output += cookies.bytes
            output += [0x0D, 0x0A]
        }
        for line in rest { try Self.append(line, to: &output) }
        output += [0x0D, 0x0A]
        request = output
    }

    private static func check(_ line: HTTPHeader) throws(UpgradeFailure) {
        guard line.isValid else {
            // The value is not quoted: it may be a secret.
            throw UpgradeFailure(
                .argument,
                "header \(HTTPSyntax.quoted(line.name)) cannot be sent: its name must be a token, its value free "
                    + "of control characters and of spaces at its ends")
        }
    }

    private static func append(_ line: HTTPHeader, to output: inout [UInt8]) throws(UpgradeFailure) {
        try check(line)
        output += line.name.utf8
        output += ": ".utf8
        output += line.value.utf8
        output += [0x0D, 0x0A]
    }

    /// Gives the request away, to be sent and wiped.
    public mutating func takeRequest() -> [UInt8] {
        defer { request = [] }
        return request
    }

    /// Whether the server's answer completes the upgrade; gives the subprotocol agreed upon.
    ///
    /// Interim answers (`HTTPResponseHead.isInterim`) are not to be given: read the next head instead.
    public func check(_ response: HTTPResponseHead) -> Result<String, UpgradeFailure> {
        guard response.status == 101 else { return .failure(refused(response)) }
        let headers = response.headers
        guard response.minorVersion == 1 else { return http("it is HTTP/1.0") }
        guard headers.contains("websocket", in: "Upgrade") else { return http("no \"Upgrade: websocket\"") }
        guard headers.contains("upgrade", in: "Connection") else { return http("no \"Connection: Upgrade\"") }
        let accepts = headers.all("Sec-WebSocket-Accept")
        guard accepts.count == 1, let accept = accepts.first else {
            return http(accepts.isEmpty ? "no Sec-WebSocket-Accept" : "several Sec-WebSocket-Accept lines")
        }
        guard HTTPSyntax.identical(accept, self.accept) else {
            return http("Sec-WebSocket-Accept does not fit the key that was sent")
        }
        guard headers.elements("Sec-WebSocket-Extensions").isEmpty else {
            return http("a WebSocket extension that was not offered")
        }
        guard headers["Transfer-Encoding"] == nil, (headers["Content-Length"] ?? "0") == "0" else {
            return http("it announces a body")
        }
        return agreed(headers.elements("Sec-WebSocket-Protocol"))
    }

    private func agreed(_ answers: [String]) -> Result<String, UpgradeFailure> {
        let offer = protocols.joined(separator: ", ")
        guard let answer = answers.first else {
            return .failure(
                UpgradeFailure(.subprotocol, "subprotocol not agreed: the server chose none of \(offer)"))
        }
        guard answers.count == 1 else {
            let list = HTTPSyntax.quoted(answers.joined(separator: ", "))
            return .failure(
                UpgradeFailure(.subprotocol, "subprotocol not agreed: the server answered with several, \(list)"))
        }
        guard let match = protocols.first(where: { HTTPSyntax.identical($0, answer) }) else {
            let text = "the server answered with \(HTTPSyntax.quoted(answer)), but offered was \(offer)"
            return .failure(UpgradeFailure(.subprotocol, "subprotocol not agreed: \(text)"))
        }
        return .success(match)
    }

    private func http(_ what: String) -> Result<String, UpgradeFailure> {
        .failure(UpgradeFailure(.http, "the server's answer to the WebSocket upgrade is not valid: \(what)"))
    }

    private func refused(_ response: HTTPResponseHead) -> UpgradeFailure {
        let reason = response.reason.isEmpty ? HTTPStatus.reason(response.status) : response.reason
        var text = "the server answered the WebSocket upgrade with HTTP status \(response.status)"
        if !reason.isEmpty { text += " " + HTTPSyntax.quoted(reason) }
        switch response.status {
        case 200...299: text += ": it is no WebSocket server, or not at this path"
        case 300...399:
            if let location = response["Location"] {
                // What stands behind a question mark, or in front of an at sign, may be a secret.
                let shown = String(Substring(location.utf8.prefix { $0 != UInt8(ascii: "?") }))
                if !shown.utf8.contains(UInt8(ascii: "@")) { text += ": it points to \(HTTPSyntax.quoted(shown))" }
            }
        case 401: text += ": it asks for user name and password"
        case 407: text += ": a proxy on the way asks for user name and password"
        case 404: text += ": it has nothing at this path"
        default: break
        }
        return UpgradeFailure(.httpStatus(response.status, reason: reason), text)
    }

    /// Headers that the handshake makes itself, or that would change how its request is read; a program may not set
    /// them.
    public static func isReserved(_ name: String) -> Bool {
        if name.utf8.count >= 14, HTTPSyntax.equal(String(name.prefix(14)), "Sec-WebSocket-") { return true }
        let reserved = [
            "Connection", "Upgrade", "Content-Length", "Transfer-Encoding", "TE", "Trailer", "Expect", "Keep-Alive",
        ]
        return reserved.contains { HTTPSyntax.equal($0, name) }
    }

    /// Whether a text may be offered or accepted as a subprotocol: an HTTP token (RFC 6455 §4.1).
    public static func isValidProtocol(_ name: String) -> Bool { HTTPSyntax.isToken(name.utf8) }
}
