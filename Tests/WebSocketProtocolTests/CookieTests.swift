import Testing

@testable import WebSocketProtocol

@Suite("Cookies")
struct CookieTests {
    private let now: Int64 = 1_800_000_000

    private func url(_ text: String) throws -> WebSocketURL { try WebSocketURL.parse(text).get() }

    private func sent(_ jar: inout CookieJar, _ text: String, at time: Int64? = nil) throws -> String {
        jar.header(for: try url(text), now: time ?? now).map { String(decoding: $0.bytes, as: UTF8.self) } ?? ""
    }

    /// What goes to the second URL after the line came from the first.
    private func after(_ line: String, from first: String, to second: String, later: Int64 = 0) throws -> String {
        var jar = CookieJar()
        _ = jar.set(line, from: try url(first), now: now)
        return try sent(&jar, second, at: now + later)
    }

    @Test(arguments: [
        ("a=b", "ws://h.example/x", "ws://h.example/x", "a=b"),
        ("a=b", "ws://h.example/x/y", "ws://h.example/x/z", "a=b"),
        ("a=b", "ws://h.example/x/y", "ws://h.example/x", "a=b"),
        ("a=b", "ws://h.example/x/y", "ws://h.example/xz", ""),
        ("a=b", "ws://h.example/x/y", "ws://h.example/", ""),
        ("a=b; Path=/", "ws://h.example/x/y", "ws://h.example/", "a=b"),
        ("a=b; Path=/x", "ws://h.example/", "ws://h.example/x/y?q", "a=b"),
        ("a=b; Path=/x", "ws://h.example/", "ws://h.example/xy", ""),
        ("a=b; Path=x", "ws://h.example/d/", "ws://h.example/d/", "a=b"),
        ("a=b", "ws://h.example/", "wss://h.example/", "a=b"),
        ("a=b", "ws://h.example:1/", "ws://h.example:2/", "a=b"),
        ("a=b", "ws://h.example/", "ws://x.h.example/", ""),
        ("a=b", "ws://x.h.example/", "ws://h.example/", ""),
        ("a=b; Domain=h.example", "ws://x.h.example/", "ws://y.h.example/", "a=b"),
        ("a=b; domain=.H.Example", "ws://x.h.example/", "ws://h.example/", "a=b"),
        ("a=b; Domain=h.example", "ws://x.h.example/", "ws://xh.example/", ""),
        ("a=b; Domain=other.example", "ws://x.h.example/", "ws://x.h.example/", ""),
        ("a=b; Domain=y.x.h.example", "ws://x.h.example/", "ws://x.h.example/", ""),
        ("a=b; Domain=example", "ws://h.example/", "ws://h.example/", ""),
        ("a=b; Domain=co.uk", "ws://h.co.uk/", "ws://h.co.uk/", "a=b"),
        ("a=b; Domain=co.uk", "ws://h.co.uk/", "ws://other.co.uk/", ""),
        ("a=b; Domain=localhost", "ws://localhost/", "ws://localhost/", "a=b"),
        ("a=b; Domain=localhost", "ws://localhost/", "ws://x.localhost/", ""),
        ("a=b; Domain=", "ws://h.example/", "ws://h.example/", "a=b"),
        ("a=b; Domain=.", "ws://h.example/", "ws://h.example/", ""),
        ("a=b; Domain=0.0.1", "ws://127.0.0.1/", "ws://127.0.0.1/", ""),
        ("a=b; Domain=127.0.0.1", "ws://127.0.0.1/", "ws://127.0.0.1/", "a=b"),
        ("a=b", "ws://[::1]/", "ws://[::1]/", "a=b"),
        ("a=b", "ws+unix://%2Fs/", "ws+unix://%2Fs/", "a=b"),
        ("a=b", "ws+unix://%2Fs/", "ws://localhost/", ""),
        ("a=b", "ws://localhost/", "ws+unix://%2Fs/", ""),
        ("a=b; Secure", "wss://h.example/", "wss://h.example/", "a=b"),
        ("a=b; Secure", "wss://h.example/", "ws://h.example/", ""),
        ("a=b; Secure", "ws://h.example/", "wss://h.example/", ""),
        ("a=b; HttpOnly; SameSite=Lax; Unknown", "ws://h.example/", "ws://h.example/", "a=b"),
        (" a = b c ; Path=/", "ws://h.example/", "ws://h.example/", "a=b c"),
        ("a=\"b\"", "ws://h.example/", "ws://h.example/", "a=\"b\""),
        ("a=", "ws://h.example/", "ws://h.example/", "a="),
        ("a=b=c", "ws://h.example/", "ws://h.example/", "a=b=c"),
        ("=b", "ws://h.example/", "ws://h.example/", ""), ("a", "ws://h.example/", "ws://h.example/", ""),
        ("", "ws://h.example/", "ws://h.example/", ""), (";", "ws://h.example/", "ws://h.example/", ""),
        ("a=b\u{1}", "ws://h.example/", "ws://h.example/", ""),
        ("a=b\r\nX: y", "ws://h.example/", "ws://h.example/", ""),
        ("__Secure-a=b", "wss://h.example/", "wss://h.example/", ""),
        ("__Secure-a=b; Secure", "wss://h.example/", "wss://h.example/", "__Secure-a=b"),
        ("__Host-a=b; Secure; Path=/", "wss://h.example/x", "wss://h.example/", "__Host-a=b"),
        ("__Host-a=b; Secure", "wss://h.example/", "wss://h.example/", ""),
        ("__Host-a=b; Secure; Path=/; Domain=h.example", "wss://h.example/", "wss://h.example/", ""),
    ])
    func matches(_ line: String, _ from: String, _ to: String, _ expected: String) throws {
        #expect(try after(line, from: from, to: to) == expected)
    }

    @Test(arguments: [
        ("a=b; Max-Age=10", 9, true), ("a=b; Max-Age=10", 10, false), ("a=b; Max-Age=0", 0, false),
        ("a=b; Max-Age=-5", 0, false), ("a=b; Max-Age=x", 1_000_000_000, true), ("a=b; Max-Age=", 1, true),
        ("a=b; Max-Age=99999999999999999999999", 399 * 86_400, true),
        ("a=b; Max-Age=99999999999999999999999", 401 * 86_400, false),
        ("a=b; Expires=Wed, 21 Oct 2015 07:28:00 GMT", 0, false),
        ("a=b; Expires=Fri, 01 Jan 2100 00:00:00 GMT", 86_400, true),
        ("a=b; Expires=Wed, 21 Oct 2015 07:28:00 GMT; Max-Age=5", 4, true),
        ("a=b; Max-Age=0; Expires=Fri, 01 Jan 2100 00:00:00 GMT", 0, false),
        ("a=b; Expires=tomorrow", 1_000_000_000, true), ("a=b; Expires=", 1, true),
        ("a=b; Expires=99 Foo 20000 99:99:99", 1, true),
        ("a=b; Expires=Thu, 01 Jan 1970 00:00:00 GMT; Expires=garbage", 0, false),
    ])
    func expires(_ line: String, _ later: Int64, _ isThere: Bool) throws {
        #expect(try after(line, from: "ws://h.example/", to: "ws://h.example/", later: later) == (isThere ? "a=b" : ""))
    }

    @Test(arguments: [
        ("Sun, 06 Nov 1994 08:49:37 GMT", 784_111_777), ("Sunday, 06-Nov-94 08:49:37 GMT", 784_111_777),
        ("Sun Nov  6 08:49:37 1994", 784_111_777), ("1 Jan 1970 00:00:00", 0), ("29 Feb 2000 00:00:00", 951_782_400),
        ("31 Dec 1969 23:59:59", -1), ("1 Jan 69 0:0:0", 3_124_224_000), ("1 Jan 1601 00:00:00", -11_644_473_600),
        ("06 November 1994 08:49:37x", 784_111_777),
    ])
    func dates(_ text: String, _ expected: Int64) { #expect(CookieDate.parse(Array(text.utf8)) == expected) }

    @Test(arguments: [
        "", "now", "29 Feb 2001 00:00:00", "31 Apr 2001 00:00:00", "32 Jan 2001 00:00:00", "0 Jan 2001 00:00:00",
        "1 Jan 1600 00:00:00", "1 Jan 2001 24:00:00", "1 Jan 2001 00:60:00", "1 Jan 2001 00:00:60", "1 Jan 2001",
        "1 Jan 00:00:00", "1 Foo 2001 00:00:00", "Jan 2001 00:00:00", "1 Jan 20011 00:00:00", "1 Jan 2001 00:00",
        "1 Jan 2001 000:00:00", ":::", "1 Jan 2001 ::",
    ])
    func noDates(_ text: String) { #expect(CookieDate.parse(Array(text.utf8)) == nil) }

    @Test func replacesAndRemoves() throws {
        var jar = CookieJar()
        let home = try url("wss://h.example/x/y")
        for line in ["a=1; Path=/", "b=2", "a=3; Path=/x", "a=4; Path=/"] { _ = jar.set(line, from: home, now: now) }
        // Longer paths first, then older ones; a new value keeps its age.
        #expect(try sent(&jar, "wss://h.example/x/y") == "b=2; a=3; a=4")
        #expect(jar.set("b=; Max-Age=0", from: home, now: now) == true)
        #expect(jar.set("b=; Max-Age=0", from: home, now: now) == false)
        #expect(try sent(&jar, "wss://h.example/x/y") == "a=3; a=4")
        jar.removeAll()
        #expect(try sent(&jar, "wss://h.example/x/y") == "")
    }

    @Test func secureOnesAreLeftAlone() throws {
        var jar = CookieJar()
        _ = jar.set("a=1; Secure; Path=/", from: try url("wss://h.example/"), now: now)
        #expect(jar.set("a=2; Path=/", from: try url("ws://h.example/"), now: now) == false)
        #expect(jar.set("a=2; Path=/; Domain=h.example", from: try url("ws://x.h.example/"), now: now) == false)
        #expect(jar.set("c=2; Path=/", from: try url("ws://h.example/"), now: now) == true)
        #expect(try sent(&jar, "wss://h.example/") == "a=1; c=2")
    }

    @Test func limits() throws {
        var jar = CookieJar()
        let home = try url("ws://h.example/")
        #expect(jar.set("a=" + String(repeating: "x", count: 4096), from: home, now: now) == false)
        #expect(jar.set("a=" + String(repeating: "x", count: 4095), from: home, now: now) == true)
        for number in 0..<200 { _ = jar.set("n\(number)=x", from: home, now: now) }
        #expect(jar.count == CookieJar.maximumOfDomain)
        for number in 0..<3000 {
            _ = jar.set("n=x", from: try url("ws://h\(number).example/"), now: now)
            _ = jar.set("m=x; Max-Age=1", from: try url("ws://h\(number).example/"), now: now - 100)
        }
        #expect(jar.count == CookieJar.maximumCookies)
        jar.removeAll()
        for number in 0..<10 { _ = jar.set("n\(number)=" + String(repeating: "x", count: 2000), from: home, now: now) }
        #expect(try sent(&jar, "ws://h.example/").utf8.count <= CookieJar.maximumHeader)
        #expect(try sent(&jar, "ws://h.example/").hasPrefix("n0=x"))
    }

    @Test func answers() throws {
        var jar = CookieJar()
        let head = HTTPResponseHead(
            status: 401, reason: "",
            headers: HTTPHeaders([
                HTTPHeader("Set-Cookie", "SyncGatewaySession=abc; Path=/db"), HTTPHeader("set-cookie", "x=y, z=1"),
                HTTPHeader("Set-Cookie", "bad"),
            ]))
        #expect(jar.receive(head, from: try url("ws://h/db/_blipsync"), now: now) == true)
        #expect(try sent(&jar, "ws://h/db/_blipsync") == "SyncGatewaySession=abc; x=y, z=1")
        #expect(!"\(jar)".contains("abc"))
    }
}
