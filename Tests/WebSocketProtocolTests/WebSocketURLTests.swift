import Testing
import WebSocketProtocol

@Suite("WebSocket URLs")
struct WebSocketURLTests {
    struct Good: Sendable, CustomTestStringConvertible {
        let text: String
        let scheme: WebSocketURL.Scheme
        var host = "localhost"
        var isLiteral = false
        var port: UInt16 = 80
        var path: String?
        var target = "/"
        var user: String?
        var password: String?
        let hostHeader: String
        let description: String
        var testDescription: String { text }
        var isSecure: Bool { [.wss, .wssUnix, .blips, .blipsUnix].contains(scheme) }
    }

    static let good: [Good] = [
        Good(
            text: "blip://Example.com:7", scheme: .blip, host: "example.com", port: 7, hostHeader: "example.com:7",
            description: "blip://example.com:7"),
        Good(
            text: "blips://[::1]/", scheme: .blips, host: "::1", isLiteral: true, port: WebSocketURL.defaultBLIPPort,
            hostHeader: "[::1]", description: "blips://[::1]"),
        Good(
            text: "blips+unix://%2Frun%2Fblip", scheme: .blipsUnix, port: WebSocketURL.defaultBLIPPort,
            path: "/run/blip", hostHeader: "localhost", description: "blips+unix://%2Frun%2Fblip"),
        Good(
            text: "ws://example.com", scheme: .ws, host: "example.com", hostHeader: "example.com",
            description: "ws://example.com/"),
        Good(
            text: "WSS://Example.COM:443/db/_blipsync?client=x", scheme: .wss, host: "example.com", port: 443,
            target: "/db/_blipsync?client=x", hostHeader: "example.com",
            description: "wss://example.com/db/_blipsync?client=x"),
        Good(
            text: "http://h:8080?x", scheme: .ws, host: "h", port: 8080, target: "/?x", hostHeader: "h:8080",
            description: "ws://h:8080/?x"),
        Good(
            text: "https://h:80/", scheme: .wss, host: "h", port: 80, hostHeader: "h:80", description: "wss://h:80/"),
        Good(
            text: "ws://127.0.0.1:4984/a//b/../c;d=1?q=/?&%20%C3%A9", scheme: .ws, host: "127.0.0.1", isLiteral: true,
            port: 4984, target: "/a//b/../c;d=1?q=/?&%20%C3%A9", hostHeader: "127.0.0.1:4984",
            description: "ws://127.0.0.1:4984/a//b/../c;d=1?q=/?&%20%C3%A9"),
        Good(
            text: "ws://[::1]:65535/", scheme: .ws, host: "::1", isLiteral: true, port: 65535,
            hostHeader: "[::1]:65535", description: "ws://[::1]:65535/"),
        Good(
            text: "wss://[2001:DB8::8:800:200C:417A]", scheme: .wss, host: "2001:db8::8:800:200c:417a",
            isLiteral: true, port: 443, hostHeader: "[2001:db8::8:800:200c:417a]",
            description: "wss://[2001:db8::8:800:200c:417a]/"),
        Good(
            text: "ws://[::ffff:192.0.2.1]/", scheme: .ws, host: "::ffff:192.0.2.1", isLiteral: true,
            hostHeader: "[::ffff:192.0.2.1]", description: "ws://[::ffff:192.0.2.1]/"),
        Good(
            text: "ws://[fe80::1%25eth0]:1/", scheme: .ws, host: "fe80::1%eth0", isLiteral: true, port: 1,
            hostHeader: "[fe80::1]:1", description: "ws://[fe80::1%25eth0]:1/"),
        Good(
            text: "ws://user:p%40ss:w%C3%B6rd@host.:80/x", scheme: .ws, host: "host.", target: "/x", user: "user",
            password: "p@ss:wörd", hostHeader: "host.", description: "ws://host./x"),
        Good(
            text: "ws://user@h/", scheme: .ws, host: "h", user: "user", hostHeader: "h", description: "ws://h/"),
        Good(
            text: "ws://:@h/", scheme: .ws, host: "h", user: "", password: "", hostHeader: "h",
            description: "ws://h/"),
        Good(
            text: "ws://h/ä\u{1F600}@:", scheme: .ws, host: "h", target: "/%C3%A4%F0%9F%98%80@:", hostHeader: "h",
            description: "ws://h/%C3%A4%F0%9F%98%80@:"),
        Good(
            text: "ws://xn--nxasmq6b.a_b-c.1a/", scheme: .ws, host: "xn--nxasmq6b.a_b-c.1a",
            hostHeader: "xn--nxasmq6b.a_b-c.1a", description: "ws://xn--nxasmq6b.a_b-c.1a/"),
        Good(
            text: "ws+unix://%2Frun%2Fblip.sock/path?q", scheme: .wsUnix, path: "/run/blip.sock", target: "/path?q",
            hostHeader: "localhost", description: "ws+unix://%2Frun%2Fblip.sock/path?q"),
        Good(
            text: "wss+unix://u:p@%2ftmp%2Fa%20b%3A%C3%A9", scheme: .wssUnix, port: 443, path: "/tmp/a b:é",
            user: "u", password: "p", hostHeader: "localhost", description: "wss+unix://%2Ftmp%2Fa%20b%3A%C3%A9/"),
        Good(
            text: "ws+unix://blip.sock", scheme: .wsUnix, path: "blip.sock", hostHeader: "localhost",
            description: "ws+unix://blip.sock/"),
    ]

    @Test("A good URL is read in all its parts, and its description is read back", arguments: good)
    func goodURL(_ good: Good) throws {
        let url = try WebSocketURL.parse(good.text).get()
        #expect(url.scheme == good.scheme)
        #expect(url.isSecure == good.isSecure)
        #expect(url.host == good.host)
        #expect(url.isIPLiteral == good.isLiteral)
        #expect(url.port == good.port)
        #expect(url.unixPath == good.path)
        #expect(url.target == good.target)
        #expect(url.user == good.user)
        #expect(url.password == good.password)
        #expect(url.hostHeader == good.hostHeader)
        #expect(url.description == good.description)
        let again = try WebSocketURL.parse(url.description).get()
        #expect(again.description == url.description)
        if good.user == nil { #expect(again == url) }
    }

    struct Bad: Sendable, CustomTestStringConvertible {
        let text: String
        let offset: Int
        let says: String
        var testDescription: String { text }
        init(_ text: String, _ offset: Int, _ says: String) {
            self.text = text
            self.offset = offset
            self.says = says
        }
    }

    static let bad: [Bad] = [
        Bad("", 0, "empty"),
        Bad("example.com", 0, "://"),
        Bad("ws:/example.com", 0, "://"),
        Bad("://h", 0, "no scheme"),
        Bad("ftp://h/", 0, "unknown"),
        Bad("ws://", 5, "no host"),
        Bad("blip://h/path", 8, "path or query, which BLIP 1 cannot carry"),
        Bad("blip://h?q", 8, "path or query"),
        Bad("blips://u:p@h", 8, "user name, which BLIP 1 cannot carry"),
        Bad("blip+unix:///run/blip", 12, "slashes are written %2F"),
        Bad("ws:///path", 5, "no host"),
        Bad("ws://:80/", 5, "no host before its port"),
        Bad("ws://u@/", 7, "no host"),
        Bad("ws://h:/", 6, "missing"),
        Bad("ws://h:0/", 7, "1 to 65535"),
        Bad("ws://h:65536/", 7, "1 to 65535"),
        Bad("ws://h:99999999999999999999/", 7, "1 to 65535"),
        Bad("ws://h:-1/", 7, "1 to 65535"),
        Bad("ws://h:+80/", 7, "1 to 65535"),
        Bad("ws://h:8 0/", 7, "1 to 65535"),
        Bad("ws://h/p#f", 8, "%23"),
        Bad("ws://h#", 6, "fragment"),
        Bad(" ws://h/", 0, "unknown"),
        Bad("ws://h /", 6, "character at byte 6"),
        Bad("ws://h/ ", 7, "%20"),
        Bad("ws://h/a\tb", 8, "control character at byte 8"),
        Bad("ws://h/\r\nX: y", 7, "control character"),
        Bad("ws://h\0/", 6, "control character"),
        Bad("ws://h/\u{7F}", 7, "control character"),
        Bad("ws://h/\u{9B}m", 7, "control character"),
        Bad("ws://h/%", 7, "two hexadecimal digits"),
        Bad("ws://h/%2", 7, "two hexadecimal digits"),
        Bad("ws://h/%G0", 7, "two hexadecimal digits"),
        Bad("ws://h/\"", 7, "%22"),
        Bad("ws://h/{id}", 7, "%7B"),
        Bad("ws://h/a\\b", 8, "%5C"),
        Bad("ws://h\\evil.com/", 6, "host names cannot have"),
        Bad("ws://h%2Fx/", 6, "host names cannot have"),
        Bad("ws://a..b/", 5, "empty part"),
        Bad("ws://.a/", 5, "empty part"),
        Bad("ws://./", 5, "empty part"),
        Bad("ws://" + String(repeating: "a", count: 64) + "/", 5, "63 bytes"),
        Bad("ws://" + String(repeating: "abcdefg.", count: 40) + "x/", 5, "253"),
        Bad("ws://exämple.com/", 7, "xn--"),
        Bad("ws://::1/", 5, "brackets, as in"),
        Bad("ws://a:b:c/", 6, "more than one"),
        Bad("ws://[::1/", 5, "no \"]\""),
        Bad("ws://[::1]80/", 10, "only a port"),
        Bad("ws://[::1]:/", 10, "missing"),
        Bad("ws://[]/", 5, "not an IPv6"),
        Bad("ws://[1:2:3:4:5:6:7]/", 5, "not an IPv6"),
        Bad("ws://[1:2:3:4:5:6:7:8:9]/", 5, "not an IPv6"),
        Bad("ws://[1::2::3]/", 5, "not an IPv6"),
        Bad("ws://[1:2:3:4:5:6:7::8]/", 5, "not an IPv6"),
        Bad("ws://[:1::]/", 5, "not an IPv6"),
        Bad("ws://[1:]/", 5, "not an IPv6"),
        Bad("ws://[12345::]/", 5, "not an IPv6"),
        Bad("ws://[::256.1.1.1]/", 5, "not an IPv6"),
        Bad("ws://[::1.2.3.4:5]/", 5, "not an IPv6"),
        Bad("ws://[v1.x]/", 5, "not an IPv6"),
        Bad("ws://[fe80::1%eth0]/", 13, "%25"),
        Bad("ws://[fe80::1%25]/", 13, "%25"),
        Bad("ws://256.1.1.1/", 5, "IPv4"),
        Bad("ws://1.2.3/", 5, "IPv4"),
        Bad("ws://127.1/", 5, "IPv4"),
        Bad("ws://2130706433/", 5, "IPv4"),
        Bad("ws://0x7f000001/", 5, "IPv4"),
        Bad("ws://010.0.0.1/", 5, "IPv4"),
        Bad("ws://a@b@h/", 8, "%40"),
        Bad("ws://u:p ss@h/", 8, "password"),
        Bad("ws://ü@h/", 5, "user name"),
        Bad("ws://u:%0A@h/", 7, "control character"),
        Bad("ws://u:%FF@h/", 7, "UTF-8"),
        Bad("ws://u:%F@h/", 7, "two hexadecimal digits"),
        Bad("ws+unix:///run/blip.sock", 10, "%2F"),
        Bad("ws+unix://", 10, "missing"),
        Bad("ws+unix://%2Frun%2Fx:80/", 20, "no port"),
        Bad("ws+unix://%2Frun%00/", 10, "NUL"),
        Bad("ws+unix://%2Frun%FF/", 10, "UTF-8"),
        Bad("ws+unix://[x]/", 10, "percent-encoded"),
        Bad("ws+unix://" + String(repeating: "x", count: 108) + "/", 10, "107"),
        Bad("ws://h/" + String(repeating: "x", count: 8192), 8192, "8192"),
    ]

    @Test("A bad URL is refused with the place and a text that helps", arguments: bad)
    func badURL(_ bad: Bad) {
        switch WebSocketURL.parse(bad.text) {
        case .success(let url): Issue.record("it was read as \(url)")
        case .failure(let failure):
            #expect(failure.text.contains(bad.says), "\(failure.text)")
            #expect(failure.offset == bad.offset, "\(failure.text)")
        }
    }

    @Test("User name and password are in no text, whatever becomes of the URL")
    func secrets() throws {
        let url = try WebSocketURL.parse("ws://alice:hunter2@h/").get()
        var dumped = ""
        dump(url, to: &dumped)
        for text in ["\(url)", String(describing: url), String(reflecting: url), "\([url])", dumped] {
            #expect(!text.contains("hunter2") && !text.contains("alice"), "\(text)")
        }
        for tail in ["h:0/", "h h/", "[::1/", "", "/", "h/#", "h/ ", "a@h/", "1.2/", "h:x", "\u{1}"] {
            guard case .failure(let failure) = WebSocketURL.parse("ws://alice:hunter2@" + tail) else {
                Issue.record("\(tail) was read")
                continue
            }
            #expect(!failure.text.contains("hunter2") && !failure.text.contains("alice"), "\(failure.text)")
        }
        let other = try WebSocketURL.parse("ws://alice:hunter3@h/").get()
        #expect(url != other)
    }

    @Test("Random texts are read or refused, and what is read has nothing that could break a request line")
    func garbage() {
        var random = Random(seed: 21)
        let pieces = [
            "ws", "wss", "http", "+unix", "://", ":", "/", "@", "[", "]", "::", "1", "255.", "%2F", "%", "#", "?", " ",
            "\r\n", "é", "\u{1F600}", "a", "-", "host", ".", "\0", "%25", "\\",
        ]
        for _ in 0..<20_000 {
            var text = random.next() % 2 == 0 ? "ws://" : ""
            for _ in 0..<(random.next() % 12) { text += pieces[Int(random.next() % UInt64(pieces.count))] }
            guard case .success(let url) = WebSocketURL.parse(text) else { continue }
            let isClean = (url.target + url.hostHeader).utf8.allSatisfy { $0 > 0x20 && $0 < 0x7F }
            if !isClean || url.target.first != "/" { Issue.record("\(text.debugDescription)") }
            if case .failure(let failure) = WebSocketURL.parse(url.description) {
                Issue.record("\(text.debugDescription): \(url): \(failure)")
            }
        }
    }
}
