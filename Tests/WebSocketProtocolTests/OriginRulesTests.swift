import Testing

@testable import WebSocketProtocol

@Suite("Origins")
struct OriginRulesTests {
    private func allows(_ allowed: [String], _ origins: [String], host: String = "h.example:4984") -> Bool {
        let lines = [HTTPHeader("Host", host)] + origins.map { HTTPHeader("Origin", $0) }
        let request = HTTPRequestHead(method: "GET", target: "/", headers: HTTPHeaders(lines))
        return OriginRules(allowed).allow(request)
    }

    @Test func programs() {
        #expect(allows([], []) && allows(["https://a"], []) && allows(["null"], []))
    }

    @Test(arguments: [
        ("http://h.example:4984", true), ("HTTP://H.EXAMPLE:4984", true), ("https://h.example:4984", true),
        ("http://h.example", false), ("http://x.h.example:4984", false), ("http://evil.example", false),
        ("null", false), ("", false), ("*", false), ("h.example:4984", false), ("http://", false),
        ("http://h.example:4984/", false), ("http://h.example:4984@evil.example", false),
        ("http://h.example:4984 http://evil.example", false), ("file://", false),
    ])
    func sameHostAlone(_ origin: String, _ isAllowed: Bool) { #expect(allows([], [origin]) == isAllowed) }

    @Test func ports() {
        #expect(allows([], ["http://h:80"], host: "h") && allows([], ["http://h"], host: "h:80"))
        #expect(allows([], ["https://h"], host: "h:443") && !allows([], ["https://h"], host: "h:80"))
        #expect(allows([], ["http://[::1]:4984"], host: "[::1]:4984"))
    }

    @Test func lists() {
        let list = ["https://app.example", "http://localhost:3000"]
        #expect(allows(list, ["https://app.example"]) && allows(list, ["https://APP.example:443"]))
        #expect(allows(list, ["http://localhost:3000"]) && !allows(list, ["http://localhost:3001"]))
        #expect(!allows(list, ["http://h.example:4984"]) && !allows(list, ["http://app.example"]))
        #expect(!allows(list, ["null"]) && allows(["null"], ["null"]))
        #expect(allows(["*"], ["null"]) && allows(["*"], ["garbage"]))
        #expect(
            !allows(["*"], ["https://a", "https://b"]) && !allows(list, ["https://app.example", "https://app.example"]))
    }

    @Test func valid() {
        for good in ["*", "null", "https://a", "http://a:1", "app://x"] {
            #expect(OriginRules.isValid(good), "\(good)")
        }
        for bad in ["", "a", "https://", "https://a/", "https://a?b", "https://a b", "https://u@a", "https://*.a"] {
            #expect(!OriginRules.isValid(bad), "\(bad)")
        }
    }
}
