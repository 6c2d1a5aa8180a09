import Testing

@testable import WebSocketProtocol

@Suite("Redirects")
struct RedirectTrailTests {
    private func url(_ text: String) throws -> WebSocketURL { try WebSocketURL.parse(text).get() }

    private func to(_ location: String?, _ status: Int = 302) -> HTTPResponseHead {
        HTTPResponseHead(
            status: status, reason: "", headers: HTTPHeaders(location.map { [HTTPHeader("Location", $0)] } ?? []))
    }

    /// RFC 3986 §5.4, with a WebSocket URL as its base.
    @Test(arguments: [
        ("g", "ws://a/b/c/g"), ("./g", "ws://a/b/c/g"), ("g/", "ws://a/b/c/g/"), ("/g", "ws://a/g"),
        ("//g", "ws://g/"), ("?y", "ws://a/b/c/d;p?y"), ("g?y", "ws://a/b/c/g?y"), ("#s", "ws://a/b/c/d;p?q"),
        ("g#s", "ws://a/b/c/g"), ("g?y#s", "ws://a/b/c/g?y"), (";x", "ws://a/b/c/;x"), ("g;x", "ws://a/b/c/g;x"),
        ("", "ws://a/b/c/d;p?q"), (".", "ws://a/b/c/"), ("./", "ws://a/b/c/"), ("..", "ws://a/b/"),
        ("../", "ws://a/b/"), ("../g", "ws://a/b/g"), ("../..", "ws://a/"), ("../../g", "ws://a/g"),
        ("../../../g", "ws://a/g"), ("../../../../g", "ws://a/g"), ("/./g", "ws://a/g"), ("/../g", "ws://a/g"),
        ("g.", "ws://a/b/c/g."), (".g", "ws://a/b/c/.g"), ("g..", "ws://a/b/c/g.."), ("..g", "ws://a/b/c/..g"),
        ("./../g", "ws://a/b/g"), ("./g/.", "ws://a/b/c/g/"), ("g/./h", "ws://a/b/c/g/h"), ("g/../h", "ws://a/b/c/h"),
        ("g;x=1/./y", "ws://a/b/c/g;x=1/y"), ("g;x=1/../y", "ws://a/b/c/y"), ("g?y/./x", "ws://a/b/c/g?y/./x"),
        ("g?y/../x", "ws://a/b/c/g?y/../x"), ("http://x:81/y", "ws://x:81/y"), ("HTTPS://x/y", "wss://x/y"),
        ("ws://x/a/../../b?c/../d", "ws://x/b?c/../d"), ("//x/./a/..", "ws://x/"), ("ws://x?a/../b", "ws://x/?a/../b"),
    ])
    func resolves(_ reference: String, _ expected: String) throws {
        let base = try url("ws://a/b/c/d;p?q")
        #expect(try url(URLReference.resolve(reference, at: base)).description == expected)
    }

    @Test(arguments: [301, 302, 303, 307, 308])
    func follows(_ status: Int) throws {
        var trail = RedirectTrail(start: try url("ws://u:p@a/b"))
        #expect(trail.receive(to("/c", status), hasChanged: false) == .follow(try url("ws://a/c")))
        #expect(trail.isAtHome && trail.current.user == nil)
        #expect(trail.receive(to("ws://b/c", status), hasChanged: false) == .follow(try url("ws://b/c")))
        #expect(!trail.isAtHome)
        #expect(trail.count == 2)
    }

    @Test(arguments: [101, 200, 300, 304, 305, 306, 401, 404, 500])
    func isNone(_ status: Int) throws {
        var trail = RedirectTrail(start: try url("ws://a/b"))
        #expect(trail.receive(to("/c", status), hasChanged: false) == .none)
    }

    private func refusal(_ start: String, _ location: String?) throws -> String {
        var trail = RedirectTrail(start: try url(start))
        guard case .refuse(let text) = trail.receive(to(location), hasChanged: false) else { return "followed" }
        #expect(trail.count == 0)
        return text
    }

    @Test func refuses() throws {
        #expect(try refusal("wss://a/", "ws://a/").contains("not encrypted"))
        #expect(try refusal("wss://a/", "http://b/").contains("not encrypted"))
        #expect(try refusal("wss+unix://%2Fs/", "ws+unix://%2Fs/").contains("not encrypted"))
        #expect(try refusal("ws://a/", "ws+unix://%2Fs/x").contains("Unix socket"))
        #expect(try refusal("ws+unix://%2Fa/", "ws+unix://%2Fs/x").contains("Unix socket"))
        #expect(try refusal("ws://a/", "ws://secret:word@b/").contains("user name"))
        #expect(!(try refusal("ws://a/", "ws://secret:word@b/")).contains("secret"))
        #expect(try refusal("ws://a/", nil).contains("does not say"))
        #expect(try refusal("ws://a/", "").contains("does not say"))
        #expect(try refusal("ws://a/", "ftp://b/").contains("something else"))
        #expect(try refusal("ws://a/", "blip://b").contains("something else"))
        #expect(try refusal("wss://a/", "blips://b").contains("something else"))
        #expect(try refusal("ws+unix://%2Fs/", "blip+unix://%2Fs").contains("something else"))
        #expect(try refusal("ws://a/", "javascript:alert(1)").contains("something else"))
        #expect(try refusal("ws://a/", "ws://").contains("something else"))
        #expect(try refusal("ws://a/x", "/x").contains("circle"))
        var trail = RedirectTrail(start: try url("ws://a/"))
        let two = HTTPResponseHead(
            status: 302, reason: "", headers: HTTPHeaders([HTTPHeader("Location", "/a"), HTTPHeader("Location", "/b")]))
        guard case .refuse = trail.receive(two, hasChanged: false) else {
            Issue.record("followed")
            return
        }
    }

    @Test func unixSocketsKeepTheirs() throws {
        var trail = RedirectTrail(start: try url("ws+unix://%2Ftmp%2Fs/a?x"))
        #expect(trail.receive(to("b?y"), hasChanged: false) == .follow(try url("ws+unix://%2Ftmp%2Fs/b?y")))
    }

    @Test func loops() throws {
        var trail = RedirectTrail(start: try url("ws://a/1"))
        #expect(trail.receive(to("/2"), hasChanged: false) == .follow(try url("ws://a/2")))
        guard case .refuse(let text) = trail.receive(to("/1"), hasChanged: false) else {
            Issue.record("followed")
            return
        }
        #expect(text.contains("circle"))
        // With a new cookie the first place may answer something else; the limit ends it in any case.
        var count = 0
        while case .follow = trail.receive(to(count % 2 == 0 ? "/1" : "/2"), hasChanged: true) { count += 1 }
        #expect(count == 9 && trail.count == 10)
    }

    @Test func limit() throws {
        var trail = RedirectTrail(start: try url("ws://a/"), limit: 0)
        #expect(trail.receive(to("/2"), hasChanged: false) == .none)
        trail = RedirectTrail(start: try url("ws://a/"))
        for number in 1...10 { #expect(trail.receive(to("/\(number)"), hasChanged: false) != .none) }
        guard case .refuse(let text) = trail.receive(to("/11"), hasChanged: false) else {
            Issue.record("followed")
            return
        }
        #expect(text.contains("10 redirects"))
    }

    @Test func queriesAreNotShown() throws {
        #expect(try url("ws://a/b?access_token=s").logged == "ws://a/b?...")
        #expect(try url("ws://a/b").logged == "ws://a/b")
        #expect(!(try refusal("wss://a/", "ws://a/?token=s3cret")).contains("s3cret"))
    }
}
