/// The server's side of the upgrade (RFC 6455 §4.2).
public enum ServerHandshake {
    /// Decides on a request. No extension is ever agreed upon.
    /// - Parameters:
    ///   - request: its head; that it is well formed is the head parser's work.
    ///   - protocols: the subprotocols that we speak. The first entry of the *client* that is among them is chosen.
    ///   - paths: the ones served, compared byte by byte with the path sent, without query; none: any.
    ///   - headers: further lines of an accepting answer; invalid ones are left out.
    public static func decide(
        _ request: HTTPRequestHead, protocols: [String], paths: [String], headers: [HTTPHeader] = []
    ) -> ServerDecision {
        func refuse(_ status: Int, _ text: String, _ headers: [HTTPHeader] = []) -> ServerDecision {
            let response = refusal(
                status: status, text: text, headers: headers, omitBody: request.method == "HEAD")
            return .refuse(status: status, response: response, text: text)
        }
        guard !request.hasBody else { return refuse(400, "A WebSocket upgrade has no body.") }
        guard request.method == "GET" else {
            return refuse(
                405, "WebSocket connections are opened with GET, not \(HTTPSyntax.quoted(request.method)).",
                [HTTPHeader("Allow", "GET")])
        }
        guard paths.isEmpty || paths.contains(where: { HTTPSyntax.identical($0, request.path) }) else {
            return refuse(404, "There is nothing at \(HTTPSyntax.quoted(request.path)).")
        }
        let upgrade = HTTPHeader("Upgrade", "websocket")
        let headersIn = request.headers
        guard request.minorVersion == 1, headersIn.contains("websocket", in: "Upgrade"),
            headersIn.contains("upgrade", in: "Connection")
        else { return refuse(426, "This is a WebSocket server: connect with a ws or wss URL.", [upgrade]) }
        guard headersIn.all("Sec-WebSocket-Version") == ["13"] else {
            return refuse(
                426, "Only version 13 of the WebSocket protocol is supported.",
                [upgrade, HTTPHeader("Sec-WebSocket-Version", "13")])
        }
        let keys = headersIn.all("Sec-WebSocket-Key")
        guard keys.count == 1, let key = keys.first, HandshakeDigest.isKey(key) else {
            return refuse(400, "Sec-WebSocket-Key must be there once, with 16 bytes in base64.")
        }
        let wanted = headersIn.elements("Sec-WebSocket-Protocol")
        guard
            let chosen = wanted.first(where: { entry in
                protocols.contains { HTTPSyntax.identical($0, entry) }
            })
        else {
            let asked = wanted.isEmpty ? "none was asked for" : "asked for was \(wanted.joined(separator: ", "))"
            let text = "subprotocol not agreed: supported are \(protocols.joined(separator: ", ")); "
            return refuse(400, text + printable(asked))
        }
        guard let accept = HandshakeDigest.accept(key: key) else {
            return refuse(500, "OpenSSL does not provide SHA-1, which the WebSocket upgrade needs.")
        }
        // Deployed clients compare the values of Upgrade and Connection whole, in this spelling.
        let lines =
            [
                upgrade, HTTPHeader("Connection", "Upgrade"), HTTPHeader("Sec-WebSocket-Accept", accept),
                HTTPHeader("Sec-WebSocket-Protocol", chosen),
            ] + headers.filter(\.isValid)
        return .accept(subprotocol: chosen, response: head(status: 101, lines))
    }

    /// The bytes of an answer that refuses a request and ends the connection.
    /// - Parameters:
    ///   - status: 400 to 599; another number becomes 500.
    ///   - text: the body, as text/plain.
    ///   - headers: further lines; invalid ones are left out.
    ///   - omitBody: the request was a HEAD.
    public static func refusal(
        status: Int, text: String, headers: [HTTPHeader] = [], omitBody: Bool = false
    ) -> [UInt8] {
        let body = Array((text + "\n").utf8)
        let status = (400...599).contains(status) ? status : 500
        let isUpgrade = headers.contains { HTTPSyntax.equal($0.name, "Upgrade") }
        let lines =
            headers.filter(\.isValid) + [
                // A sender of Upgrade has to name it in Connection (RFC 9110 §7.8).
                HTTPHeader("Connection", isUpgrade ? "Upgrade, close" : "close"),
                HTTPHeader("Content-Type", "text/plain; charset=utf-8"),
                HTTPHeader("Content-Length", String(body.count)),
            ]
        return head(status: status, lines) + (omitBody ? [] : body)
    }

    /// The bytes of an answer that gives a plain HTTP request what it asked for and ends the connection.
    /// - Parameters:
    ///   - text: the body.
    ///   - type: its Content-Type.
    ///   - omitBody: the request was a HEAD.
    public static func document(_ text: String, type: String, omitBody: Bool = false) -> [UInt8] {
        let body = Array(text.utf8)
        let lines = [
            HTTPHeader("Connection", "close"), HTTPHeader("Cache-Control", "no-store"),
            HTTPHeader("Content-Type", type), HTTPHeader("Content-Length", String(body.count)),
        ]
        return head(status: 200, lines) + (omitBody ? [] : body)
    }

    private static func head(status: Int, _ lines: [HTTPHeader]) -> [UInt8] {
        var output = Array("HTTP/1.1 \(status) \(HTTPStatus.reason(status))\r\n".utf8)
        for line in lines { output += Array("\(line.name): \(line.value)\r\n".utf8) }
        return output + [0x0D, 0x0A]
    }

    /// A peer's text within one of ours: short, without control characters.
    private static func printable(_ text: String) -> String {
        String(HTTPSyntax.quoted(text).dropFirst().dropLast())
    }
}
