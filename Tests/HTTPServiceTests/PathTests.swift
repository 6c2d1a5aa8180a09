import Foundation
import Testing
import WebSocketProtocol

@testable import HTTPService

@Suite struct PathTests {
    private static let escapes = [
        "/files/../secret", "/files/..", "/files/./a", "/files//a", "/files/%2e%2e/secret", "/files/%2E%2E%2Fsecret",
        "/files/..%2fsecret", "/files/sub/../../secret", "/files/sub/%2e%2e/%2e%2e/secret", "/files/.%2e/secret",
        "/files/%2e./secret", "/files/a%00b", "/files/a%", "/files/a%2", "/files/a%zz", "/files/%2fetc%2fpasswd",
        "/files//etc/passwd", "/files/..;/secret", "/files/...", "/files/.hidden", "/files/sub/.hidden", "/files/link",
        "/files/link/secret", "/files/sub/up/secret", "/files/pipe", "/files/%c0%ae%c0%ae/secret", "/files/..%5csecret",
        "/files/..\\secret", "/files/sub/link-to-file", "/files/%252e%252e/secret", "/files/dev",
    ]

    @Test("Nothing outside of the root is reached", arguments: escapes)
    func escape(path: String) throws {
        let site = try Site()
        let manager = FileManager.default
        let outside = site.folder.deletingLastPathComponent().appendingPathComponent("outside-\(UUID().uuidString)")
        try manager.createDirectory(at: outside, withIntermediateDirectories: true)
        defer { try? manager.removeItem(at: outside) }
        try Data("secret".utf8).write(to: outside.appendingPathComponent("secret"))
        try site.write("sub/f", "f")
        try site.write(".hidden", "secret")
        try site.write("sub/.hidden", "secret")
        try manager.createSymbolicLink(at: site.folder.appendingPathComponent("link"), withDestinationURL: outside)
        try manager.createSymbolicLink(
            atPath: site.folder.appendingPathComponent("sub/up").path,
            withDestinationPath: "../../\(outside.lastPathComponent)")
        try manager.createSymbolicLink(
            at: site.folder.appendingPathComponent("sub/link-to-file"),
            withDestinationURL: outside.appendingPathComponent("secret"))
        try manager.createSymbolicLink(
            atPath: site.folder.appendingPathComponent("dev").path, withDestinationPath: "/dev/zero")
        mkfifo(site.folder.appendingPathComponent("pipe").path, 0o600)
        let answer = site.get(path)
        #expect(answer.status == 404 || answer.status == 400, "\(path): \(answer.status)")
        #expect(!answer.text.contains("secret\n") && answer.text != "secret")
    }

    @Test("Paths of URLs as names")
    func paths() {
        func names(_ text: String, hidden: Bool = false) -> [String]? {
            FilePath(text.utf8, showsHidden: hidden)?.names.map { String(decoding: $0, as: UTF8.self) }
        }
        #expect(names("") == [])
        #expect(FilePath("".utf8, showsHidden: false)?.isFolder == true)
        #expect(names("a/b%20c") == ["a", "b c"])
        #expect(FilePath("a/".utf8, showsHidden: false)?.isFolder == true)
        #expect(FilePath("a".utf8, showsHidden: false)?.isFolder == false)
        #expect(names("/") == nil)
        #expect(names("a//b") == nil)
        #expect(names(".x") == nil)
        #expect(names(".x", hidden: true) == [".x"])
        #expect(names("..", hidden: true) == nil)
        #expect(names(String(repeating: "a/", count: 65)) == nil)
        #expect(names(String(repeating: "a", count: 256)) == nil)
    }

    @Test("Folders: a page with links that lead somewhere, and a redirect to the slash")
    func folders() throws {
        let site = try Site()
        try site.write("sub/<b>&\"'.txt", "x")
        try site.write("plain", "y")
        #expect(site.get("/files").headers["location"] == "/files/")
        #expect(site.get("/files/sub").headers["location"] == "/files/sub/")
        #expect(site.get("/files/plain/").status == 404)
        let page = site.get("/files/sub/")
        #expect(page.status == 200)
        #expect(!page.text.contains("<b>"))
        #expect(page.text.contains("&lt;b&gt;&amp;&quot;&#39;.txt"))
        #expect(page.headers["content-security-policy"]?.contains("default-src 'none'") == true)
        #expect(!page.text.contains("secret-token"))
        let link = try #require(
            page.text.components(separatedBy: "href=\"./").last?.components(separatedBy: "\"").first)
        #expect(site.get("/files/sub/\(link)").text == "x")
    }

    @Test("Files of the pages themselves, and nothing else beside them")
    func assets() throws {
        let site = try Site()
        #expect(site.get("/-/blip/style.css").headers["content-type"] == "text/css; charset=utf-8")
        #expect(site.get("/favicon.ico").headers["content-type"] == "image/svg+xml")
        #expect(site.get("/-/blip/none.css").status == 404)
        #expect(site.get("/-/blip/dashboard.html").status == 404)
        #expect(site.get("/elsewhere").status == 404)
        #expect(
            site.request("POST /-/blip/style.css HTTP/1.1\r\nHost: a\r\nContent-Length: 0\r\n\r\n")[0].status == 405)
    }

    @Test("The page of a dashboard says where it connects to, and that address what it wants (RFC 9110 §15.5.22)")
    func dashboard() throws {
        func ask(_ path: String) -> HTTPResponse {
            let request = HTTPRequestHead(method: "GET", target: path, headers: HTTPHeaders())
            return SitePages.dashboard(request, prefix: "/d\"<&/", socket: "/d\"<&/socket")
        }
        guard case .bytes(let page) = ask("/d\"<&/").body else {
            Issue.record("no page")
            return
        }
        let text = String(decoding: page, as: UTF8.self)
        #expect(text.contains("data-socket=\"/d&quot;&lt;&amp;/socket\"") && !text.contains("@ASSETS@"))
        let refusal = ask("/d\"<&/socket")
        #expect(refusal.status == 426 && HTTPHeaders(refusal.headers)["Upgrade"] == "websocket")
        #expect(HTTPHeaders(refusal.headers).contains("upgrade", in: "Connection"))
        #expect(HTTPStatus.reason(426) == "Upgrade Required")
        #expect(ask("/d\"<&").status == 301)
    }
}
