import Testing

@testable import WebSocketProtocol

@Suite struct ProxyTests {
    /// Feeds a proxy's answers in pieces of `size` bytes; what was sent, and how it ended.
    private func run(_ handshake: ProxyHandshake, _ answer: [UInt8], size: Int) -> (
        sent: [[UInt8]], end: ProxyStep?, rest: [UInt8]
    ) {
        var handshake = handshake
        var sent = [handshake.greeting()]
        var held = [UInt8]()
        var position = 0
        while true {
            let step = held.withUnsafeBytes { handshake.receive($0) }
            switch step {
            case .more(let consumed):
                held.removeFirst(consumed)
                if consumed > 0, !held.isEmpty { continue }
                guard position < answer.count else { return (sent, nil, held) }
                let end = min(position + size, answer.count)
                held += answer[position..<end]
                position = end
            case .send(let bytes, let consumed):
                held.removeFirst(consumed)
                sent.append(bytes)
            case .connected(let consumed):
                held.removeFirst(consumed)
                return (sent, step, held + answer[position...])
            case .again, .failed, .asks: return (sent, step, held + answer[position...])
            }
        }
    }

    private let target = ProxyTarget(host: "server.test", port: 443)

    private func connect(_ user: String? = nil, isPreemptive: Bool = false) -> ProxyHandshake {
        .connect(
            ConnectHandshake(
                target: target, userAgent: "t/1",
                credentials: user.map { .password(user: $0, SecretBytes(Array("pw".utf8))) },
                isPreemptive: isPreemptive, entropy: { [UInt8](repeating: 7, count: 16) }))
    }

    private func socks(_ user: String? = nil, _ password: String? = nil, _ other: ProxyTarget? = nil) -> ProxyHandshake
    {
        .socks(SOCKSHandshake(target: other ?? target, user: user, password: password))
    }

    @Test("CONNECT: the way is open after a 2xx, and what follows belongs to the target", arguments: [1, 2, 7, 1000])
    func connects(_ size: Int) {
        let result = run(
            connect("me", isPreemptive: true),
            Array("HTTP/1.1 100 Continue\r\n\r\nHTTP/1.0 200 \r\nA: b\r\n\r\nHTTP".utf8),
            size: size)
        #expect(result.rest == Array("HTTP".utf8))
        guard case .connected = result.end else {
            Issue.record("\(String(describing: result.end))")
            return
        }
        #expect(
            result.sent.map { String(decoding: $0, as: UTF8.self) } == [
                "CONNECT server.test:443 HTTP/1.1\r\nHost: server.test:443\r\nUser-Agent: t/1\r\n"
                    + "Proxy-Authorization: Basic bWU6cHc=\r\n\r\n"
            ])
    }

    private func refusal(_ lines: String...) -> String {
        "HTTP/1.1 407 No\r\n" + lines.map { $0 + "\r\n" }.joined() + "\r\n"
    }

    private let digest = #"Proxy-Authenticate: Digest realm="r", nonce="n", qop="auth", algorithm=SHA-256"#
    private let basic = #"Proxy-Authenticate: Basic realm="r""#

    @Test(
        "CONNECT: a challenge is answered on the same connection, behind the refusal's body", arguments: [1, 5, 1000])
    func challenge(_ size: Int) {
        for (challenge, answer) in [
            (digest, #"Proxy-Authorization: Digest username="me", "#),
            (basic, "Proxy-Authorization: Basic bWU6cHc=\r\n"),
        ] {
            let answers = refusal(challenge, "Content-Length: 5") + "HTTP/" + "HTTP/1.1 200 OK\r\n\r\nx"
            let result = run(connect("me"), Array(answers.utf8), size: size)
            #expect(result.rest == Array("x".utf8))
            #expect(result.sent.count == 2)
            #expect(!String(decoding: result.sent[0], as: UTF8.self).contains("Proxy-Authorization"))
            #expect(String(decoding: result.sent[1], as: UTF8.self).contains(answer))
            #expect(!result.sent.contains { String(decoding: $0, as: UTF8.self).contains("pw") })
        }
    }

    @Test("CONNECT: a proxy that refuses for ever is not asked for ever")
    func limited() {
        for challenge in [basic, digest, digest + ", stale=true"] {
            let same = refusal(challenge, "Content-Length: 0")
            let result = run(connect("me"), Array(String(repeating: same, count: 10).utf8), size: 1000)
            #expect((2...5).contains(result.sent.count))
            guard case .failed(let failure)? = result.end else {
                Issue.record("\(String(describing: result.end))")
                continue
            }
            #expect(failure.domain == .http && failure.code == 407)
        }
    }

    private func asking() -> ProxyHandshake {
        .connect(
            ConnectHandshake(
                target: target, userAgent: nil, credentials: .password(user: "me", SecretBytes(Array("bad".utf8))),
                isPreemptive: true, asks: true, entropy: { [UInt8](repeating: 7, count: 16) }))
    }

    /// Feeds a refusal in pieces; the challenges in it, and what follows the program's answer.
    private func ask(
        _ handshake: inout ProxyHandshake, _ refusal: String, size: Int,
        _ answer: (inout ConnectHandshake, [HTTPChallenge]) -> ProxyStep
    ) -> (list: [HTTPChallenge], step: ProxyStep)? {
        var held = [UInt8]()
        var list: [HTTPChallenge]?
        let bytes = Array(refusal.utf8)
        for start in stride(from: 0, to: bytes.count, by: size) {
            held += bytes[start..<min(start + size, bytes.count)]
            while true {
                let step = held.withUnsafeBytes { handshake.receive($0) }
                if case .asks(let asked, let failure, let consumed) = step {
                    guard list == nil, failure.code == 407, failure.domain == .http else { return nil }
                    list = asked
                    held.removeFirst(consumed)
                } else if case .more(let consumed) = step {
                    held.removeFirst(consumed)
                    if consumed == 0 || held.isEmpty { break }
                } else {
                    return nil
                }
                if held.isEmpty { break }
            }
        }
        guard let list else { return nil }
        return (list, handshake.goOn { answer(&$0, list) })
    }

    @Test("CONNECT: the program may answer what the credentials do not, any number of times", arguments: [1, 3, 1000])
    func asks(_ size: Int) throws {
        var handshake = asking()
        #expect(String(decoding: handshake.greeting(), as: UTF8.self).contains("Proxy-Authorization: Basic bWU6YmFk"))
        for round in 1...3 {
            let found = ask(&handshake, refusal(basic, "Content-Length: 5") + "12345", size: size) { handshake, list in
                handshake.answer(.password(user: "me", SecretBytes(Array("pw".utf8))), to: list)
            }
            let (list, step) = try #require(found)
            #expect(list.map(\.scheme) == ["basic"])
            #expect(handshake.challenges == round)
            guard case .send(let request, 0) = step else {
                Issue.record("\(step)")
                return
            }
            #expect(String(decoding: request, as: UTF8.self).contains("Proxy-Authorization: Basic bWU6cHc=\r\n"))
        }
        let found = ask(&handshake, refusal("Proxy-Authenticate: Own x=1", "Content-Length: 0"), size: size) {
            handshake, _ in handshake.answer(header: SecretBytes(Array("Own y".utf8)))
        }
        guard case .send(let request, 0)? = found?.step else {
            Issue.record("\(String(describing: found))")
            return
        }
        #expect(String(decoding: request, as: UTF8.self).contains("Proxy-Authorization: Own y\r\n"))
        guard case .connected = Array("HTTP/1.1 200 OK\r\n\r\n".utf8).withUnsafeBytes({ handshake.receive($0) }) else {
            Issue.record("no way")
            return
        }
    }

    @Test("CONNECT: after an answer the connection is used again only if nothing speaks against it")
    func asksAgain() throws {
        let answer: (inout ConnectHandshake, [HTTPChallenge]) -> ProxyStep = { handshake, list in
            handshake.answer(.password(user: "me", SecretBytes(Array("pw".utf8))), to: list)
        }
        for text in [
            refusal(basic, "Connection: close", "Content-Length: 0"), refusal(basic),
            // What nobody has asked for.
            refusal(basic, "Content-Length: 0") + "HTTP/1.1 200 OK\r\n\r\n",
        ] {
            for size in [1, 1000] {
                var handshake = asking()
                _ = handshake.greeting()
                #expect(try #require(ask(&handshake, text, size: size, answer)).step == .again)
                #expect(String(decoding: handshake.greeting(), as: UTF8.self).contains("bWU6cHc="))
            }
        }
        // The answer may be faster than the rest of the refusal.
        var handshake = asking()
        _ = handshake.greeting()
        let early = ask(&handshake, refusal(basic, "Content-Length: 5") + "123", size: 1, answer)
        #expect(early?.step == .more(consumed: 0))
        guard case .send(_, 2) = Array("45".utf8).withUnsafeBytes({ handshake.receive($0) }) else {
            Issue.record("no request")
            return
        }
        var gone = asking()
        _ = gone.greeting()
        let late = ask(&gone, refusal(basic, "Content-Length: 0"), size: 1000) { handshake, list in
            handshake.connectionDidEnd()
            return answer(&handshake, list)
        }
        #expect(late?.step == .again)
    }

    @Test("CONNECT: where the connection ends with the refusal, a new one is asked for")
    func again() {
        for line in [
            "Connection: close\r\nContent-Length: 0", "X: y", "Transfer-Encoding: gzip", "Content-Length: 99999999",
        ] {
            let result = run(connect("me"), Array(refusal(basic, line).utf8), size: 1)
            #expect(result.end == .again)
            #expect(result.sent.count == 1)
        }
    }

    @Test("CONNECT: refusals and garbage have their texts")
    func refusals() {
        for (answer, code, words) in [
            ("HTTP/1.1 503 Sorry\r\n\r\n", 503, "503 \"Sorry\""), ("HTTP/1.1 302 \r\n\r\n", 302, "302"),
            ("HTTP/1.1 407 No\r\n\r\n", 407, "wants authentication"),
            ("HTTP/1.1 407 No\r\nProxy-Authenticate: Basic realm=x\r\n\r\n", 407, "proxy's URL"),
            ("garbage\r\n", 0, "HTTP proxy"),
            ("\u{15}\u{03}\u{01}", 0, "https proxy URL"), ("HTTP/1.1 200 OK\n", 0, "HTTP proxy"),
        ] {
            for size in [1, 100] {
                guard case .failed(let failure)? = run(connect(), Array(answer.utf8), size: size).end else {
                    Issue.record("\(answer)")
                    continue
                }
                #expect(failure.code == code && failure.text.contains(words), "\(failure.text)")
            }
        }
    }

    @Test("SOCKS: names, IPv4 and IPv6 targets, with and without a password", arguments: [1, 2, 3, 100])
    func socksConnects(_ size: Int) {
        let reply: [[UInt8]] = [
            [5, 0, 0, 1, 1, 2, 3, 4, 0, 80], [5, 0, 0, 3, 2, 65, 66, 0, 80],
            [5, 0, 0, 4] + [UInt8](repeating: 7, count: 16) + [0, 80], [5, 0, 0, 3, 0, 0, 80],
        ]
        for answer in reply {
            let result = run(socks(), [5, 0] + answer + [9, 9], size: size)
            #expect(result.rest == [9, 9])
            #expect(result.sent == [[5, 1, 0], [5, 1, 0, 3, 11] + Array("server.test".utf8) + [1, 187]])
        }
        let secret = run(socks("me", "pw"), [5, 2, 1, 0] + reply[0], size: size)
        #expect(secret.sent[0] == [5, 2, 0, 2])
        #expect(secret.sent[1] == [1, 2] + Array("me".utf8) + [2] + Array("pw".utf8))
        #expect(secret.sent.count == 3 && secret.rest.isEmpty)
        let ipv4 = ProxyTarget(host: "1.2.3.4", port: 80, address: ProxyTarget.address("1.2.3.4"))
        #expect(run(socks(nil, nil, ipv4), [5, 0] + reply[0], size: size).sent[1] == [5, 1, 0, 1, 1, 2, 3, 4, 0, 80])
        let ipv6 = ProxyTarget(host: "::1", port: 80, address: ProxyTarget.address("::1"))
        #expect(
            run(socks(nil, nil, ipv6), [5, 0] + reply[0], size: size).sent[1]
                == [5, 1, 0, 4] + [UInt8](repeating: 0, count: 15) + [1, 0, 80])
    }

    @Test("SOCKS: refusals and garbage have their texts, and no byte sequence traps")
    func socksRefusals() {
        for (answer, words) in [
            ([UInt8]([5, 255]), "wants authentication"), ([4], "byte 4"), ([72], "http proxy URL"),
            ([5, 9], "not offered"), ([5, 2], "not offered"), ([5, 0, 5, 5], "refused"), ([5, 0, 5, 77], "code 77"),
            ([5, 0, 4], "malformed"), ([5, 0, 5, 0, 0, 2, 0], "unknown kind"),
        ] {
            for size in [1, 100] {
                var answer = answer
                if answer == [5, 0, 4] { answer.append(0) }
                guard case .failed(let failure)? = run(socks(), answer, size: size).end else {
                    Issue.record("\(answer)")
                    continue
                }
                #expect(failure.text.contains(words), "\(failure.text)")
            }
        }
        var generator = SystemRandomNumberGenerator()
        for _ in 0..<2000 {
            var bytes = (0..<Int.random(in: 0...40, using: &generator)).map { _ in UInt8.random(in: 0...5) }
            if Bool.random() { bytes = [5, 2, 1, 0, 5, 0, 0] + bytes }
            let whole = run(socks("u", "p"), bytes, size: 100)
            let pieces = run(socks("u", "p"), bytes, size: 1)
            #expect(whole.sent == pieces.sent)
        }
    }

    @Test(
        "Proxy URLs",
        arguments: [
            ("http://h:3128", "http://h:3128"), ("h", "http://h:1080"), ("h:80", "http://h:80"),
            ("https://h", "https://h:443"), ("https://h:80/", "https://h:80"), ("SOCKS5://h", "socks5://h:1080"),
            ("socks5h://[::1]:443", "socks5h://[::1]:443"), ("socks://h", "socks5h://h:1080"),
            ("http://u:p%40@h:1", "http://h:1"),
        ])
    func urls(_ text: String, _ expected: String) throws {
        let url = try ProxyURL.parse(text).get()
        #expect(url.description == expected && "\(String(reflecting: url))" == expected)
        if text.contains("u:p") { #expect(url.user == "u" && url.password == "p@") }
    }

    @Test(
        "URLs that are no proxy's",
        arguments: [
            "", "ftp://h", "http://", "http://h/x", "http://h?x", "http://h:0x", "socks4://h", "a b", "h:99999",
        ])
    func badURLs(_ text: String) {
        #expect(throws: URLFailure.self) { try ProxyURL.parse(text).get() }
    }

    @Test(
        "no_proxy",
        arguments: [
            ("example.com", "example.com", true), ("example.com", "a.example.com", true),
            (".example.com", "example.com", true), ("ample.com", "example.com", false),
            ("EXAMPLE.com", "example.com", true), ("example.com", "example.com.", true),
            ("x, example.com ,y", "example.com", true), ("*", "anything", true), ("", "anything", false),
            ("10.0.0.0/8", "10.9.8.7", true), ("10.0.0.0/8", "11.0.0.1", false), ("10.0.0.1", "10.0.0.1", true),
            ("10.0.0.1", "10.0.0.10", false), ("fe80::/10", "fe80::1", true), ("[::1]", "::1", true),
            ("::1", "::1", true), ("0:0::1", "::1", true), ("10.0.0.0/33", "10.0.0.0", false),
            ("10.0.0.0/x", "10.0.0.0", false), ("0.0.0.0/0", "8.8.8.8", true), ("::/0", "8.8.8.8", false),
            ("0.0.1", "10.0.0.1", false), (",,", "x", false), (".", "x", false),
        ])
    func exceptions(_ list: String, _ host: String, _ expected: Bool) {
        #expect(ProxyEnvironment.matches(list, host: host) == expected)
    }

    @Test("Variables: the scheme's own first, lower case first, and never HTTP_PROXY")
    func variables() {
        func proxy(_ variables: [String: String], secure: Bool = false) -> String? {
            ProxyEnvironment { variables[$0] }.proxy(isSecure: secure, host: "h", port: 1)
        }
        #expect(proxy(["http_proxy": "a", "ws_proxy": "b", "all_proxy": "c"]) == "b")
        #expect(proxy(["http_proxy": "a", "all_proxy": "c"]) == "a")
        #expect(proxy(["HTTP_PROXY": "a"]) == nil)
        #expect(proxy(["http_proxy": "", "ALL_PROXY": "c"]) == "c")
        #expect(proxy(["http_proxy": "a"], secure: true) == nil)
        #expect(proxy(["HTTPS_PROXY": "a", "https_proxy": "b"], secure: true) == "b")
        #expect(proxy(["all_proxy": "a", "no_proxy": "h"]) == nil)
    }
}
