import Testing

@testable import WebSocketProtocol

@Suite("Host names of pages")
struct HostRulesTests {
    private func allows(_ names: [String], _ host: String?, others: [String] = []) -> Bool {
        let lines = host.map { [HTTPHeader("Host", $0)] } ?? []
        let request = HTTPRequestHead(method: "GET", target: "/", headers: HTTPHeaders(lines))
        return HostRules(names).allow(request, others: others)
    }

    @Test(arguments: [
        ("127.0.0.1", true), ("127.0.0.1:4984", true), ("192.168.1.7:80", true), ("[::1]", true), ("[::1]:4984", true),
        ("[fe80::1]:1", true), ("localhost", true), ("LocalHost:4984", true), ("localhost.:4984", true),
        ("app.localhost:1", true), ("evil.example", false), ("evil.example:4984", false),
        ("127.0.0.1.evil.example", false),
        ("localhost.evil.example", false), ("notlocalhost", false), ("127.0.0.256", false), ("127.0.0.1:x", false),
        ("[::1", false), ("[::1].evil.example", false), ("[evil]", false), ("", false), (":80", false), ("::1", false),
        ("*", false),
    ])
    func names(_ host: String, _ isAllowed: Bool) { #expect(allows([], host) == isAllowed, "\(host)") }

    @Test func lists() {
        #expect(allows(["files.example"], "FILES.example:8080") && allows(["Files.Example."], "files.example"))
        #expect(!allows(["files.example"], "x.files.example") && !allows(["files.example"], "evil.example"))
        #expect(allows(["files.example"], "localhost") && allows(["*"], "evil.example"))
        #expect(allows([], "mine:1", others: ["Mine"]) && !allows([], "mine:1", others: [""]))
        #expect(allows([], nil))
    }

    @Test func valid() {
        for good in ["*", "a", "a.example", "A.example.", "[::1]", "10.0.0.1"] {
            #expect(HostRules.isValid(good), "\(good)")
        }
        for bad in ["", "a:80", "http://a", "a/b", "a b", "*.a", "u@a", "a,b"] {
            #expect(!HostRules.isValid(bad), "\(bad)")
        }
    }
}
