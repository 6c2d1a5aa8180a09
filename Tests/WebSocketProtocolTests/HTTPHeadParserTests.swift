import Testing
import WebSocketProtocol

@Suite("HTTP heads")
struct HTTPHeadParserTests {
    private func feed(_ kind: HTTPHeadParser.Kind, _ pieces: [[UInt8]], maximum: Int = 16384) -> HTTPHeadEvent {
        var parser = HTTPHeadParser(kind, maximum: maximum)
        var held: [UInt8] = []
        for piece in pieces {
            held += piece
            let event = held.withUnsafeBytes { parser.feed($0) }
            if event != .incomplete { return event }
        }
        return .incomplete
    }

    private func everyWay(
        _ kind: HTTPHeadParser.Kind, _ text: String, maximum: Int = 16384, _ check: (HTTPHeadEvent, String) -> Void
    ) {
        let bytes = Array(text.utf8)
        check(feed(kind, [bytes], maximum: maximum), "whole")
        check(feed(kind, bytes.map { [$0] }, maximum: maximum), "byte by byte")
        for cut in 0...bytes.count {
            check(feed(kind, [Array(bytes[..<cut]), Array(bytes[cut...])], maximum: maximum), "cut at \(cut)")
        }
    }

    static let upgrade =
        "GET /chat?x=1 HTTP/1.1\r\nHost: server.example.com\r\nUpgrade: websocket\r\nConnection:Upgrade\r\n"
        + "Sec-WebSocket-Protocol: \t chat, superchat \t\r\nX-Empty:\r\nx-two: a\r\nX-TWO: b\r\n\r\n"

    @Test("A request head is read the same however it comes, and the bytes behind it are the caller's")
    func request() {
        let expected = HTTPRequestHead(
            method: "GET", target: "/chat?x=1",
            headers: HTTPHeaders([
                HTTPHeader("Host", "server.example.com"), HTTPHeader("Upgrade", "websocket"),
                HTTPHeader("Connection", "Upgrade"), HTTPHeader("Sec-WebSocket-Protocol", "chat, superchat"),
                HTTPHeader("X-Empty", ""), HTTPHeader("x-two", "a"), HTTPHeader("X-TWO", "b"),
            ]))
        everyWay(.request, Self.upgrade) { event, how in
            #expect(event == .request(expected, consumed: Self.upgrade.utf8.count), "\(how)")
        }
        let followed = Array(Self.upgrade.utf8) + [0x82, 0x00, 0x0D, 0x0A, 0x0D, 0x0A]
        #expect(feed(.request, [followed]) == .request(expected, consumed: Self.upgrade.utf8.count))
        #expect(expected["UPGRADE"] == "websocket")
        #expect(expected["None"] == nil)
        #expect(expected.all("X-Two") == ["a", "b"])
        #expect(expected.headers.elements("sec-websocket-protocol") == ["chat", "superchat"])
        #expect(expected.path == "/chat")
    }

    @Test("A response head is read the same however it comes; reason and values beyond ASCII are kept")
    func response() {
        let text = "HTTP/1.1 401 Nicht erlaubt: é\r\nWWW-Authenticate: Basic realm=\"x\"\r\n\r\n"
        let expected = HTTPResponseHead(
            status: 401, reason: "Nicht erlaubt: é",
            headers: HTTPHeaders([HTTPHeader("WWW-Authenticate", "Basic realm=\"x\"")]))
        everyWay(.response, text) { event, how in
            #expect(event == .response(expected, consumed: text.utf8.count), "\(how)")
        }
        for line in ["HTTP/1.1 101", "HTTP/1.1 101 "] {
            let head = HTTPResponseHead(status: 101, reason: "", headers: HTTPHeaders())
            #expect(feed(.response, [Array("\(line)\r\n\r\n".utf8)]) == .response(head, consumed: line.count + 4))
        }
        let latin = Array("HTTP/1.0 404 ".utf8) + [0xE9] + Array("\r\n\r\n".utf8)
        let head = HTTPResponseHead(status: 404, reason: "é", minorVersion: 0, headers: HTTPHeaders())
        #expect(feed(.response, [latin]) == .response(head, consumed: latin.count))
    }

    @Test("One parser reads an interim answer and then the real one")
    func interim() {
        let first = "HTTP/1.1 100 Continue\r\n\r\n"
        let bytes = Array((first + "HTTP/1.1 101 Switching Protocols\r\nA: b\r\n\r\n").utf8)
        var parser = HTTPHeadParser(.response)
        guard case .response(let head, let consumed) = bytes.withUnsafeBytes({ parser.feed($0) }) else {
            Issue.record("no head")
            return
        }
        #expect(head.isInterim && consumed == first.utf8.count)
        let rest = Array(bytes[consumed...])
        guard case .response(let second, rest.count) = rest.withUnsafeBytes({ parser.feed($0) }) else {
            Issue.record("no second head")
            return
        }
        #expect(second.status == 101 && !second.isInterim && second["a"] == "b")
    }

    struct Bad: Sendable, CustomTestStringConvertible {
        let text: String
        let status: Int
        let says: String
        var testDescription: String { text.debugDescription }
        init(_ text: String, _ says: String, status: Int = 400) {
            self.text = text
            self.says = says
            self.status = status
        }
    }

    static let badRequests: [Bad] = [
        Bad("\r\nGET / HTTP/1.1\r\nHost: h\r\n\r\n", "method"),
        Bad(" GET / HTTP/1.1\r\nHost: h\r\n\r\n", "method"),
        Bad("\u{16}\u{03}\u{01}", "TLS"),
        Bad("GET / HTTP/1.1\nHost: h\n\n", "line feed"),
        Bad("GET / HTTP/1.1\r\nHost: h\nX: y\r\n\r\n", "line feed"),
        Bad("GET / HTTP/1.1\r\nHost: h\rX: y\r\n\r\n", "carriage return"),
        Bad("GET / HTTP/1.1\r\nHost: h\r\n\rX: y\r\n\r\n", "carriage return"),
        Bad("GET / HTTP/1.1\r\r\nHost: h\r\n\r\n", "carriage return"),
        Bad("GET / HTTP/1.1\r\nHost: h\r\nX: a\0b\r\n\r\n", "control"),
        Bad("GET / HTTP/1.1\r\nHost: h\r\nX: a\u{7F}\r\n\r\n", "control"),
        Bad("GET / HTTP/1.1\r\nHost: h\r\nX: a\r\n b\r\n\r\n", "folded"),
        Bad("GET / HTTP/1.1\r\nHost: h\r\nX: a\r\n\tb\r\n\r\n", "folded"),
        Bad("GET / HTTP/1.1\r\n Host: h\r\n\r\n", "folded"),
        Bad("GET / HTTP/1.1\r\nHost : h\r\n\r\n", "token"),
        Bad("GET / HTTP/1.1\r\nHost\t: h\r\n\r\n", "token"),
        Bad("GET / HTTP/1.1\r\nHost: h\r\n: x\r\n\r\n", "name"),
        Bad("GET / HTTP/1.1\r\nHost: h\r\nno colon\r\n\r\n", "colon"),
        Bad("GET / HTTP/1.1\r\nHost: h\r\nX(y): z\r\n\r\n", "token"),
        Bad("GET / HTTP/1.1\r\nHost: h\r\nXé: z\r\n\r\n", "token"),
        Bad("GET / HTTP/1.1\r\n\r\n", "no Host"),
        Bad("GET / HTTP/1.1\r\nHost: a\r\nhost: b\r\n\r\n", "several Host"),
        Bad("GET / HTTP/1.1\r\nHost: a\r\nHost: a\r\n\r\n", "several Host"),
        Bad("GET / HTTP/1.1\r\nHost: a/b\r\n\r\n", "Host"),
        Bad("GET / HTTP/1.1\r\nHost: a, b\r\n\r\n", "Host"),
        Bad("GET / HTTP/1.1\r\nHost: u@h\r\n\r\n", "Host"),
        Bad("GET  / HTTP/1.1\r\nHost: h\r\n\r\n", "request line"),
        Bad("GET /  HTTP/1.1\r\nHost: h\r\n\r\n", "request line"),
        Bad("GET / HTTP/1.1 \r\nHost: h\r\n\r\n", "request line"),
        Bad("GET\t/\tHTTP/1.1\r\nHost: h\r\n\r\n", "request line"),
        Bad("GET /\r\n\r\n", "request line"),
        Bad("GET / FTP/1.1\r\nHost: h\r\n\r\n", "version"),
        Bad("GET / http/1.1\r\nHost: h\r\n\r\n", "version"),
        Bad("GET / HTTP/2.0\r\nHost: h\r\n\r\n", "version", status: 505),
        Bad("GET / HTTP/1.2\r\nHost: h\r\n\r\n", "version", status: 505),
        Bad("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", "version", status: 505),
        Bad("GET x HTTP/1.1\r\nHost: h\r\n\r\n", "target"),
        Bad("GET * HTTP/1.1\r\nHost: h\r\n\r\n", "target"),
        Bad("GET http:/x HTTP/1.1\r\nHost: h\r\n\r\n", "target"),
        Bad("GET http:// HTTP/1.1\r\nHost: h\r\n\r\n", "target"),
        Bad("GET /#f HTTP/1.1\r\nHost: h\r\n\r\n", "target"),
        Bad("GET /é HTTP/1.1\r\nHost: h\r\n\r\n", "target"),
        Bad("G@T / HTTP/1.1\r\nHost: h\r\n\r\n", "method"),
        Bad("POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n", "beside"),
        Bad("POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 5\r\nContent-Length: 5\r\n\r\n", "several Content"),
        Bad("POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 5\r\nContent-Length: 6\r\n\r\n", "several Content"),
        Bad("POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 5, 5\r\n\r\n", "not a number"),
        Bad("POST / HTTP/1.1\r\nHost: h\r\nContent-Length: +5\r\n\r\n", "not a number"),
        Bad("POST / HTTP/1.1\r\nHost: h\r\nContent-Length: -1\r\n\r\n", "not a number"),
        Bad("POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 0x5\r\n\r\n", "not a number"),
        Bad("POST / HTTP/1.1\r\nHost: h\r\nContent-Length:\r\n\r\n", "not a number"),
        Bad("POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 99999999999999999999\r\n\r\n", "not a number"),
        Bad("POST / HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: xchunked\r\n\r\n", "chunked"),
        Bad("POST / HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked, identity\r\n\r\n", "chunked"),
        Bad("POST / HTTP/1.1\r\nHost: h\r\nTransfer-Encoding:\r\n\r\n", "chunked"),
        Bad("POST / HTTP/1.0\r\nTransfer-Encoding: chunked\r\n\r\n", "HTTP/1.0"),
    ]

    @Test("What two readers could take differently is refused, however it comes", arguments: badRequests)
    func badRequest(_ bad: Bad) {
        everyWay(.request, bad.text) { event, how in
            guard case .failed(bad.status, let text) = event else {
                Issue.record("\(how): \(event)")
                return
            }
            #expect(text.contains(bad.says), "\(how): \(text)")
        }
    }

    static let badResponses: [Bad] = [
        Bad("SSH-2.0-OpenSSH\r\n", "HTTP"), Bad("\u{15}\u{03}\u{03}", "wss"),
        Bad("HTTP/1.1 10 x\r\n\r\n", "status"), Bad("HTTP/1.1 1o1 x\r\n\r\n", "three digits"),
        Bad("HTTP/1.1 1011\r\n\r\n", "three digits"), Bad("HTTP/1.1 001 x\r\n\r\n", "three digits"),
        Bad("HTTP/2 101 x\r\n\r\n", "HTTP/1.1"), Bad("HTTP/1.1  101 x\r\n\r\n", "three digits"),
        Bad("HTTP/1.1\r\n\r\n", "HTTP/1.1"), Bad("HTTP/1.1 101 x\n\n", "line feed"),
        Bad("HTTP/1.1 200 x\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\n", "several"),
    ]

    @Test("Bad responses are refused, however they come", arguments: badResponses)
    func badResponse(_ bad: Bad) {
        everyWay(.response, bad.text) { event, how in
            guard case .failed(0, let text) = event else {
                Issue.record("\(how): \(event)")
                return
            }
            #expect(text.contains(bad.says), "\(how): \(text)")
        }
    }

    @Test("A bad byte is reported before the head is whole")
    func early() {
        for text in ["GET / HTTP/1.1\n", "\0", "GET / HTTP/1.1\r\nX: y\r\n z", "GET / HTTP/1.1\r\nX\r:"] {
            guard case .failed(400, _) = feed(.request, [Array(text.utf8)]) else {
                Issue.record("\(text.debugDescription)")
                continue
            }
        }
    }

    @Test("The limit on bytes holds exactly, and the limit on lines too")
    func limits() {
        let size = Self.upgrade.utf8.count
        everyWay(.request, Self.upgrade, maximum: size) { event, how in
            guard case .request(_, size) = event else {
                Issue.record("\(how): \(event)")
                return
            }
        }
        everyWay(.request, Self.upgrade, maximum: size - 1) { event, how in
            guard case .failed(431, let text) = event else {
                Issue.record("\(how): \(event)")
                return
            }
            #expect(text.contains("limit of \(size - 1) bytes"))
        }
        guard case .failed(431, _) = feed(.request, [Array(Self.upgrade.utf8.dropLast())], maximum: size - 1) else {
            Issue.record("a full buffer without an end was waited on")
            return
        }
        let endless = [UInt8](repeating: 0x41, count: 20000)
        guard case .failed(431, _) = feed(.request, [endless]) else {
            Issue.record("an endless line was taken")
            return
        }
        guard case .failed(431, _) = feed(.request, [[0x47]], maximum: 0) else {
            Issue.record("a limit of 0 was not kept")
            return
        }
        for (count, isGood) in [(99, true), (100, false)] {
            let lines = String(repeating: "A: b\r\n", count: count)
            let event = feed(.request, [Array("GET / HTTP/1.1\r\nHost: h\r\n\(lines)\r\n".utf8)])
            switch event {
            case .request: #expect(isGood)
            case .failed(431, _): #expect(!isGood)
            default: Issue.record("\(event)")
            }
        }
    }

    @Test("Requests in absolute form, without a host in HTTP/1.0, and with lengths are read")
    func otherForms() {
        func head(_ text: String) -> HTTPRequestHead? {
            guard case .request(let head, text.utf8.count) = feed(.request, [Array(text.utf8)]) else { return nil }
            return head
        }
        let absolute = head("GET ws://h:80/p/q?r HTTP/1.1\r\nHost: h:80\r\n\r\n")
        #expect(absolute?.pathAndQuery == "/p/q?r")
        #expect(absolute?.path == "/p/q")
        #expect(head("GET http://h HTTP/1.1\r\nHost: h\r\n\r\n")?.pathAndQuery == "/")
        #expect(head("GET http://h?q HTTP/1.1\r\nHost: h\r\n\r\n")?.pathAndQuery == "/?q")
        #expect(head("GET //x/y HTTP/1.1\r\nHost: h\r\n\r\n")?.path == "//x/y")
        #expect(head("OPTIONS * HTTP/1.1\r\nHost: h\r\n\r\n")?.path == "*")
        #expect(head("GET / HTTP/1.0\r\n\r\n")?.minorVersion == 0)
        #expect(head("GET / HTTP/1.1\r\nHost: [::1]:80\r\n\r\n")?["host"] == "[::1]:80")
        #expect(head("GET / HTTP/1.1\r\nHost: h\r\nContent-Length: 0\r\n\r\n")?.hasBody == false)
        #expect(head("POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 7\r\n\r\n")?.hasBody == true)
        #expect(head("POST / HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: Chunked\r\n\r\n")?.hasBody == true)
    }
}
