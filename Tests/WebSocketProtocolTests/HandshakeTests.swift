import Testing

@testable import WebSocketProtocol

@Suite("The upgrade")
struct HandshakeTests {
    /// The nonce whose base64 form is the key of RFC 6455 §1.3, "the sample nonce".
    static let nonce = Array("the sample nonce".utf8)
    static let key = "dGhlIHNhbXBsZSBub25jZQ=="
    static let accept = "s3pPLMBiTxaQ9kYGzzhZRbK+xOo="

    private func url(_ text: String) throws -> WebSocketURL { try WebSocketURL.parse(text).get() }

    private func request(_ bytes: [UInt8]) -> HTTPRequestHead? {
        var parser = HTTPHeadParser(.request)
        guard case .request(let head, bytes.count) = bytes.withUnsafeBytes({ parser.feed($0) }) else { return nil }
        return head
    }

    private func response(_ bytes: [UInt8]) -> (head: HTTPResponseHead, body: String)? {
        var parser = HTTPHeadParser(.response)
        guard case .response(let head, let consumed) = bytes.withUnsafeBytes({ parser.feed($0) }) else { return nil }
        return (head, text(Array(bytes[consumed...])))
    }

    @Test("The accept value of the RFC's sample nonce is the RFC's")
    func accept() {
        #expect(Base64.text(Self.nonce) == Self.key)
        #expect(HandshakeDigest.accept(key: Self.key) == Self.accept)
    }

    @Test("Base64 gives the test vectors of RFC 4648 §10")
    func base64() {
        for (plain, coded) in [
            ("", ""), ("f", "Zg=="), ("fo", "Zm8="), ("foo", "Zm9v"), ("foob", "Zm9vYg=="), ("fooba", "Zm9vYmE="),
            ("foobar", "Zm9vYmFy"),
        ] {
            #expect(Base64.text(Array(plain.utf8)) == coded)
        }
        #expect(Base64.text([0xFB, 0xFF, 0xBF]) == "+/+/")
    }

    @Test("The client's request is exactly these bytes")
    func clientRequest() throws {
        let handshake = try ClientHandshake(
            url: url("ws://alice:secret@h.example:8080/db/_blipsync?a=b"),
            protocols: ["BLIP_3+CBMobile_4", "BLIP_3+CBMobile_3"], headers: [HTTPHeader("X-Token", "1 2")],
            userAgent: "libblip/1", nonce: Self.nonce)
        #expect(
            text(handshake.request) == """
                GET /db/_blipsync?a=b HTTP/1.1\r
                Host: h.example:8080\r
                Connection: Upgrade\r
                Upgrade: websocket\r
                Sec-WebSocket-Version: 13\r
                Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r
                Sec-WebSocket-Protocol: BLIP_3+CBMobile_4,BLIP_3+CBMobile_3\r
                User-Agent: libblip/1\r
                Authorization: Basic YWxpY2U6c2VjcmV0\r
                X-Token: 1 2\r
                \r

                """)
    }

    @Test("Host, User-Agent and Authorization of the program take the place of ours")
    func overridden() throws {
        let handshake = try ClientHandshake(
            url: url("ws+unix://u:p@%2Frun%2Fx/"), protocols: ["BLIP_3"],
            headers: [
                HTTPHeader("host", "other"), HTTPHeader("authorization", "Bearer x"), HTTPHeader("user-agent", "me"),
            ], userAgent: "libblip/1", nonce: Self.nonce)
        let head = try #require(request(handshake.request))
        #expect(head.all("Host") == ["other"])
        #expect(head.all("Authorization") == ["Bearer x"])
        #expect(head.all("User-Agent") == ["me"])
        let plain = try ClientHandshake(
            url: url("ws+unix://%2Frun%2Fx/"), protocols: ["BLIP_3"], nonce: Self.nonce)
        let second = try #require(request(plain.request))
        #expect(second.all("Host") == ["localhost"])
        #expect(second["User-Agent"] == nil && second["Authorization"] == nil)
    }

    @Test("What cannot be sent is refused, and values are not quoted")
    func badArguments() throws {
        let url = try url("ws://h/")
        func kind(
            _ protocols: [String], _ headers: [HTTPHeader] = [], agent: String? = nil, nonce: [UInt8] = Self.nonce
        )
            -> UpgradeFailure?
        {
            do throws(UpgradeFailure) {
                _ = try ClientHandshake(
                    url: url, protocols: protocols, headers: headers, userAgent: agent, nonce: nonce)
                return nil
            } catch { return error }
        }
        #expect(kind(["BLIP_3"]) == nil)
        #expect(kind([])?.kind == .argument)
        #expect(kind([""])?.kind == .argument)
        #expect(kind(["BLIP 3"])?.kind == .argument)
        #expect(kind(["BLIP_3,BLIP"])?.kind == .argument)
        #expect(kind(["BLIP_3", "BLIP_3"])?.kind == .argument)
        #expect(kind(["BLIP_3"], nonce: [])?.kind == .argument)
        #expect(kind(["BLIP_3"], agent: "a\r\nb: c")?.kind == .argument)
        for header in [
            HTTPHeader("Connection", "close"), HTTPHeader("UPGRADE", "h2c"), HTTPHeader("sec-websocket-key", "x"),
            HTTPHeader("Sec-WebSocket-Extensions", "permessage-deflate"), HTTPHeader("Content-Length", "5"),
            HTTPHeader("transfer-encoding", "chunked"), HTTPHeader("", "x"), HTTPHeader("a b", "x"),
            HTTPHeader("a:", "x"), HTTPHeader("a", "secret\r\nb: c"), HTTPHeader("a", "secret\n"),
            HTTPHeader("a", "secret\0"), HTTPHeader("a", " secret"), HTTPHeader("a", "secret "),
        ] {
            let failure = kind(["BLIP_3"], [header])
            #expect(failure?.kind == .argument, "\(header)")
            #expect(failure?.text.contains("secret") == false)
        }
        // One that is joined with the jar's is looked at, too.
        #expect(throws: UpgradeFailure.self) {
            try ClientHandshake(
                url: url, protocols: ["BLIP_3"], headers: [HTTPHeader("Cookie", "secret\r\nb: c")],
                cookies: SecretBytes("d=e"), nonce: Self.nonce)
        }
        #expect(kind(["BLIP_3"], [HTTPHeader("Host", "a"), HTTPHeader("Host", "b")])?.kind == .argument)
        let odd = try WebSocketURL.parse("ws://a%3Ab:c@h/").get()
        #expect(throws: UpgradeFailure.self) {
            try ClientHandshake(url: odd, protocols: ["BLIP_3"], nonce: Self.nonce)
        }
    }

    private func check(_ lines: String, status: String = "101 Switching Protocols") throws -> Result<
        String, UpgradeFailure
    > {
        let handshake = try ClientHandshake(
            url: url("ws://h/"), protocols: ["BLIP_3+A", "BLIP_3"], nonce: Self.nonce)
        let bytes = Array("HTTP/1.1 \(status)\r\n\(lines)\r\n".utf8)
        return handshake.check(try #require(response(bytes)).head)
    }

    static let goodLines = [
        "Upgrade: websocket\r\n", "Connection: Upgrade\r\n", "Sec-WebSocket-Accept: \(accept)\r\n",
        "Sec-WebSocket-Protocol: BLIP_3\r\n",
    ]

    @Test("A good answer agrees on one of our subprotocols")
    func goodAnswers() throws {
        #expect(try check(Self.goodLines.joined()) == .success("BLIP_3"))
        let spelled =
            "upgrade: foo, WebSocket\r\nCONNECTION: keep-alive, UPGRADE\r\nsec-websocket-accept:   \(Self.accept)  \r\n"
            + "Sec-WebSocket-Protocol: BLIP_3+A \r\nX: y\r\nSec-WebSocket-Extensions:\r\nContent-Length: 0\r\n"
        #expect(try check(spelled) == .success("BLIP_3+A"))
    }

    @Test("A bad answer fails with its kind and a text that says why")
    func badAnswers() throws {
        func expect(
            _ lines: String, _ kind: UpgradeFailure.Kind, _ says: String, location: SourceLocation = #_sourceLocation
        ) throws {
            guard case .failure(let failure) = try check(lines) else {
                Issue.record("agreed", sourceLocation: location)
                return
            }
            #expect(failure.kind == kind, sourceLocation: location)
            #expect(failure.text.contains(says), "\(failure.text)", sourceLocation: location)
        }
        let good = Self.goodLines
        try expect(good[1] + good[2] + good[3], .http, "Upgrade: websocket")
        try expect("Upgrade: h2c\r\n" + good[1] + good[2] + good[3], .http, "Upgrade: websocket")
        try expect("Upgrade: websocket/13x\r\n" + good[1] + good[2] + good[3], .http, "Upgrade: websocket")
        try expect(good[0] + good[2] + good[3], .http, "Connection: Upgrade")
        try expect(good[0] + "Connection: close\r\n" + good[2] + good[3], .http, "Connection: Upgrade")
        try expect(good[0] + good[1] + good[3], .http, "no Sec-WebSocket-Accept")
        try expect(good.joined() + good[2], .http, "several Sec-WebSocket-Accept")
        let wrong = "Sec-WebSocket-Accept: \(Self.accept.lowercased())\r\n"
        try expect(good[0] + good[1] + wrong + good[3], .http, "does not fit")
        try expect(good.joined() + "Sec-WebSocket-Extensions: permessage-deflate\r\n", .http, "extension")
        try expect(good.joined() + "Content-Length: 5\r\n", .http, "body")
        try expect(good.joined() + "Transfer-Encoding: chunked\r\n", .http, "body")
        let start = good[0] + good[1] + good[2]
        try expect(start, .subprotocol, "none of BLIP_3+A, BLIP_3")
        try expect(start + "Sec-WebSocket-Protocol:\r\n", .subprotocol, "none of")
        try expect(start + "Sec-WebSocket-Protocol: BLIP\r\n", .subprotocol, "\"BLIP\"")
        try expect(start + "Sec-WebSocket-Protocol: blip_3\r\n", .subprotocol, "\"blip_3\"")
        try expect(start + "Sec-WebSocket-Protocol: BLIP_3, BLIP_3+A\r\n", .subprotocol, "several")
        try expect(good.joined() + good[3], .subprotocol, "several")
    }

    @Test("Another status is told with its reason and what it may mean")
    func statuses() throws {
        for (status, lines, kind, says) in [
            ("401 No", "", .httpStatus(401, reason: "No"), "user name and password"),
            ("404", "", .httpStatus(404, reason: "Not Found"), "nothing at this path"),
            ("302 Found", "Location: ws://x/\r\n", .httpStatus(302, reason: "Found"), "ws://x/"),
            ("200 OK", "", .httpStatus(200, reason: "OK"), "no WebSocket server"),
            ("599", "", .httpStatus(599, reason: ""), "599"),
            ("426 Upgrade Required", "", .httpStatus(426, reason: "Upgrade Required"), "426"),
        ] as [(String, String, UpgradeFailure.Kind, String)] {
            guard case .failure(let failure) = try check(lines, status: status) else {
                Issue.record("agreed")
                continue
            }
            #expect(failure.kind == kind)
            #expect(failure.text.contains(says), "\(failure.text)")
        }
        let handshake = try ClientHandshake(url: url("ws://h/"), protocols: ["BLIP_3"], nonce: Self.nonce)
        let old = HTTPResponseHead(status: 101, reason: "", minorVersion: 0, headers: HTTPHeaders())
        guard case .failure(let failure) = handshake.check(old) else {
            Issue.record("agreed")
            return
        }
        #expect(failure.kind == .http)
    }

    private func decide(
        _ lines: String, start: String = "GET /db HTTP/1.1", paths: [String] = [], headers: [HTTPHeader] = []
    ) throws -> ServerDecision {
        let head = try #require(request(Array("\(start)\r\nHost: h\r\n\(lines)\r\n".utf8)))
        return ServerHandshake.decide(head, protocols: ["BLIP_3", "BLIP"], paths: paths, headers: headers)
    }

    static let requestLines = [
        "Upgrade: websocket\r\n", "Connection: keep-alive, Upgrade\r\n", "Sec-WebSocket-Version: 13\r\n",
        "Sec-WebSocket-Key: \(key)\r\n", "Sec-WebSocket-Protocol: BLIP_3+X, BLIP\r\n",
    ]

    @Test("The server's accepting answer is exactly these bytes")
    func serverAnswer() throws {
        let decision = try decide(
            Self.requestLines.joined(), headers: [HTTPHeader("Server", "libblip/1"), HTTPHeader("Bad", "a\r\nb")])
        guard case .accept("BLIP", let bytes) = decision else {
            Issue.record("\(decision)")
            return
        }
        #expect(
            text(bytes) == """
                HTTP/1.1 101 Switching Protocols\r
                Upgrade: websocket\r
                Connection: Upgrade\r
                Sec-WebSocket-Accept: \(Self.accept)\r
                Sec-WebSocket-Protocol: BLIP\r
                Server: libblip/1\r
                \r

                """)
    }

    @Test("The client's first entry that we speak is chosen, over all lines, compared exactly")
    func choice() throws {
        let start = Self.requestLines.dropLast().joined()
        for (lines, chosen) in [
            ("Sec-WebSocket-Protocol: BLIP,BLIP_3\r\n", "BLIP"),
            ("Sec-WebSocket-Protocol: BLIP_3,BLIP\r\n", "BLIP_3"),
            ("Sec-WebSocket-Protocol: blip, x\r\nsec-websocket-protocol: , y ,\tBLIP_3\r\n", "BLIP_3"),
            ("Sec-WebSocket-Protocol: BLIP_3+CBMobile_3\r\n", nil), ("Sec-WebSocket-Protocol: BLIP_3.\r\n", nil),
            ("Sec-WebSocket-Protocol: BLIP_\r\n", nil), ("Sec-WebSocket-Protocol: ,\r\n", nil), ("", nil),
        ] as [(String, String?)] {
            switch try decide(start + lines) {
            case .accept(let name, let bytes):
                #expect(name == chosen)
                #expect(response(bytes)?.head.all("Sec-WebSocket-Protocol") == [name])
            case .refuse(let status, let bytes, let reason):
                #expect(chosen == nil, "\(lines)")
                #expect(status == 400)
                #expect(reason.contains("BLIP_3, BLIP"))
                #expect(response(bytes)?.body == reason + "\n")
            }
        }
    }

    @Test("Other requests are refused with the status and headers that fit")
    func refusals() throws {
        let good = Self.requestLines
        let all = good.joined()
        func expect(
            _ decision: ServerDecision, _ status: Int, _ name: String? = nil, _ value: String? = nil,
            location: SourceLocation = #_sourceLocation
        ) {
            guard case .refuse(status, let bytes, _) = decision, let answer = response(bytes) else {
                Issue.record("\(decision)", sourceLocation: location)
                return
            }
            #expect(answer.head.status == status, sourceLocation: location)
            #expect(answer.head.headers.contains("close", in: "Connection"), sourceLocation: location)
            if let name {
                #expect(answer.head.all(name) == [value], sourceLocation: location)
            }
        }
        expect(try decide(all, start: "POST /db HTTP/1.1"), 405, "Allow", "GET")
        expect(try decide(all, start: "get /db HTTP/1.1"), 405, "Allow", "GET")
        expect(try decide(all, paths: ["/", "/db/", "/DB"]), 404)
        expect(try decide("", paths: ["/x"]), 404)
        expect(try decide(""), 426, "Upgrade", "websocket")
        expect(try decide(""), 426, "Connection", "Upgrade, close")
        expect(try decide(good[1...].joined()), 426, "Upgrade", "websocket")
        expect(try decide("Upgrade: h2c\r\n" + good[1...].joined()), 426, "Upgrade", "websocket")
        expect(try decide(good[0] + good[2...].joined()), 426, "Upgrade", "websocket")
        expect(try decide(all, start: "GET /db HTTP/1.0"), 426, "Upgrade", "websocket")
        for version in ["", "Sec-WebSocket-Version: 8\r\n", "Sec-WebSocket-Version: 13, 8\r\n", good[2] + good[2]] {
            let lines = good[0] + good[1] + version + good[3] + good[4]
            expect(try decide(lines), 426, "Sec-WebSocket-Version", "13")
        }
        for key in [
            "", "Sec-WebSocket-Key: \r\n", "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ=\r\n",
            "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ\r\n", "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZSE=\r\n",
            "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZ*==\r\n", good[3] + good[3],
        ] {
            expect(try decide(good[0] + good[1] + good[2] + key + good[4]), 400)
        }
        expect(try decide(all + "Content-Length: 3\r\n"), 400)
        expect(try decide(all + "Transfer-Encoding: chunked\r\n"), 400)
        #expect(try decide(all + "Content-Length: 0\r\n", paths: ["/db"]) == decide(all))
        let extended = try decide(all + "Sec-WebSocket-Extensions: permessage-deflate\r\n")
        #expect(try extended == decide(all))
        guard case .accept = try decide(all, start: "GET http://h/db?x=y HTTP/1.1", paths: ["/x", "/db"]) else {
            Issue.record("an absolute target was refused")
            return
        }
        guard case .refuse(405, let bytes, _) = try decide(all, start: "HEAD /db HTTP/1.1") else {
            Issue.record("HEAD was taken")
            return
        }
        #expect(response(bytes)?.body == "")
    }

    @Test("Refusals made for other reasons are whole answers")
    func refusal() throws {
        let bytes = ServerHandshake.refusal(
            status: 401, text: "who are you", headers: [HTTPHeader("WWW-Authenticate", "Basic realm=\"x\"")])
        let answer = try #require(response(bytes))
        #expect(answer.head.status == 401 && answer.head.reason == "Unauthorized")
        #expect(answer.head["www-authenticate"] == "Basic realm=\"x\"")
        #expect(answer.head["Content-Length"] == "12" && answer.body == "who are you\n")
        #expect(response(ServerHandshake.refusal(status: 101, text: ""))?.head.status == 500)
        #expect(response(ServerHandshake.refusal(status: -7, text: ""))?.head.status == 500)
        #expect(response(ServerHandshake.refusal(status: 499, text: ""))?.head.status == 499)
    }

    @Test("Our client and our server agree, and early frames behind either head stay with the caller")
    func together() throws {
        let handshake = try ClientHandshake(
            url: url("ws://h/db"), protocols: ["BLIP_3+CBMobile_4", "BLIP_3"], nonce: Self.nonce)
        let early = frame(0x82, [1, 2, 3], mask: [9, 9, 9, 9])
        var parser = HTTPHeadParser(.request)
        let bytes = handshake.request + early
        guard case .request(let head, let consumed) = bytes.withUnsafeBytes({ parser.feed($0) }) else {
            Issue.record("no request")
            return
        }
        #expect(parse([Array(bytes[consumed...])], role: .server).seen == [.binary([1, 2, 3])])
        guard case .accept("BLIP_3", let answer) = ServerHandshake.decide(head, protocols: ["BLIP_3"], paths: ["/db"])
        else {
            Issue.record("refused")
            return
        }
        var client = HTTPHeadParser(.response)
        let answerBytes = answer + frame(0x82, [4])
        guard case .response(let reply, answer.count) = answerBytes.withUnsafeBytes({ client.feed($0) }) else {
            Issue.record("no response")
            return
        }
        #expect(handshake.check(reply) == .success("BLIP_3"))
    }
}
