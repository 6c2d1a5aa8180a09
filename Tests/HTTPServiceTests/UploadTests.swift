import Foundation
import Testing

@testable import HTTPService

@Suite struct UploadTests {
    private func writable(_ change: (inout FileService.Options) -> Void = { _ in }) throws -> Site {
        var options = FileService.Options()
        options.isWritable = true
        change(&options)
        return try Site(options)
    }

    private func put(_ path: String, _ body: String, _ headers: String = "") -> String {
        "PUT \(path) HTTP/1.1\r\nHost: a\r\n\(headers)Content-Length: \(body.utf8.count)\r\n\r\n\(body)"
    }

    private func form(_ path: String, _ parts: [(String, String?, String)], headers: String = "Origin: http://a\r\n")
        -> String
    {
        var body = ""
        for (field, file, content) in parts {
            let name = file.map { "; filename=\"\($0)\"" } ?? ""
            body += "--xyz\r\nContent-Disposition: form-data; name=\"\(field)\"\(name)\r\n\r\n\(content)\r\n"
        }
        body += "--xyz--\r\n"
        return "POST \(path) HTTP/1.1\r\nHost: a\r\n\(headers)Content-Type: multipart/form-data; boundary=xyz\r\n"
            + "Content-Length: \(body.utf8.count)\r\n\r\n\(body)"
    }

    @Test("PUT stores a file, in one piece or byte by byte, sized or in chunks", arguments: [1, 5, Int.max])
    func stores(size: Int) throws {
        let site = try writable()
        #expect(site.request(put("/files/new.txt", "content"), pieces: size)[0].status == 201)
        #expect(site.read("new.txt") == "content")
        let chunked =
            "PUT /files/c HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n"
            + "3;x=y\r\nabc\r\nA\r\n0123456789\r\n0\r\nTrailer: t\r\n\r\n"
        #expect(site.request(chunked + put("/files/d", "d"), pieces: size).map(\.status) == [201, 201])
        #expect(site.read("c") == "abc0123456789")
        #expect(site.request(put("/files/empty", ""), pieces: size)[0].status == 201)
        #expect(site.read("empty") == "")
        #expect(site.names == ["c", "d", "empty", "new.txt"])
    }

    @Test("What is there is replaced only if that is allowed")
    func replaces() throws {
        let site = try writable()
        try site.write("f", "old")
        #expect(site.request(put("/files/f", "new"))[0].status == 409)
        #expect(site.read("f") == "old")
        let other = try writable { $0.mayReplace = true }
        try other.write("f", "old")
        try other.write("folder/x", "x")
        #expect(other.request(put("/files/f", "new"))[0].status == 204)
        #expect(other.read("f") == "new")
        #expect(other.request(put("/files/g", "new"))[0].status == 201)
        #expect(other.request("DELETE /files/g HTTP/1.1\r\nHost: a\r\n\r\n")[0].status == 204)
        #expect(other.request(put("/files/folder", "new"))[0].status == 409)
        #expect(other.names == ["f", "folder"])
    }

    @Test("Without writing allowed, nothing is changed")
    func readOnly() throws {
        let site = try Site()
        try site.write("f", "old")
        for text in [
            put("/files/g", "x"), "DELETE /files/f HTTP/1.1\r\nHost: a\r\n\r\n",
            form("/files/", [("token", nil, "secret-token")]),
        ] {
            #expect(site.request(text)[0].status == 403)
        }
        #expect(site.names == ["f"])
    }

    @Test("A file that is too large, cut off, or malformed leaves nothing behind")
    func leavesNothing() throws {
        let site = try writable { $0.uploadLimit = 10 }
        #expect(site.request(put("/files/f", "01234567890"))[0].status == 413)
        let chunked =
            "PUT /files/c HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\nB\r\n01234567890\r\n0\r\n\r\n"
        #expect(site.request(chunked)[0].status == 413)
        #expect(
            site.request("PUT /files/b HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\nx\r\n")[0].status == 400
        )
        let cut = try writable()
        _ = cut.exchange(Array("PUT /files/f HTTP/1.1\r\nHost: a\r\nContent-Length: 100\r\n\r\nabc".utf8))
        #expect(cut.names.count == 1 && cut.names[0].hasPrefix(".upload-"))
        cut.session.abandon()
        #expect(cut.names == [])
        #expect(site.names == [])
    }

    @Test(
        "Names that are none are refused",
        arguments: ["/files/", "/files/.x", "/files/..", "/files/no/f", "/files/a%2fb"])
    func names(path: String) throws {
        let site = try writable()
        #expect((400..<500).contains(site.request(put(path, "x"))[0].status))
        #expect(site.names == [])
    }

    @Test("A form stores files, makes folders and removes", arguments: [1, 11, Int.max])
    func forms(size: Int) throws {
        let site = try writable()
        try site.write("old", "x")
        let token = ("token", nil as String?, "secret-token")
        let upload = form(
            "/files/", [token, ("file", "a.txt", "one\r\n--xy not the end"), ("file", "C:\\dir\\b.txt", "two")])
        let answer = site.request(upload, pieces: size)[0]
        #expect(answer.status == 303 && answer.headers["location"] == "/files/")
        #expect(site.read("a.txt") == "one\r\n--xy not the end")
        #expect(site.read("b.txt") == "two")
        #expect(site.request(form("/files/", [token, ("folder", nil, "made")]), pieces: size)[0].status == 303)
        #expect(site.request(form("/files/", [token, ("remove", nil, "old")]), pieces: size)[0].status == 303)
        #expect(site.request(form("/files/", [token, ("remove", nil, "made")]), pieces: size)[0].status == 303)
        #expect(site.names == ["a.txt", "b.txt"])
        #expect(site.request(form("/files/", [token, ("file", "", "")]), pieces: size)[0].status == 303)
        #expect(site.request(form("/files/", [token, ("remove", nil, "..")]), pieces: size)[0].status == 400)
    }

    @Test("Pages of other sites change nothing")
    func foreign() throws {
        let site = try writable()
        let file = ("file", "a" as String?, "x")
        let token = ("token", nil as String?, "secret-token")
        let attempts = [
            form("/files/", [token, file], headers: "Origin: http://evil\r\n"),
            form("/files/", [token, file], headers: "Origin: null\r\n"),
            form("/files/", [token, file], headers: "Origin: https://a\r\n"),
            form("/files/", [token, file], headers: "Sec-Fetch-Site: cross-site\r\n"),
            form("/files/", [file, token]),
            form("/files/", [("token", nil, "wrong"), file]),
            form("/files/", [("token", nil, ""), file]),
            put("/files/a", "x", "Origin: http://a\r\n"),
            put("/files/a", "x", "Origin: http://a\r\nX-Form-Token: secret-tokem\r\n"),
            put("/files/a", "x", "Origin: http://evil\r\nX-Form-Token: secret-token\r\n"),
        ]
        for attempt in attempts {
            #expect(site.request(attempt)[0].status == 403, "\(attempt)")
            #expect(site.names == [])
        }
        #expect(
            site.request(put("/files/a", "x", "Origin: http://a\r\nX-Form-Token: secret-token\r\n"))[0].status == 201)
    }

    @Test("A malformed form is refused")
    func malformed() throws {
        let site = try writable()
        func post(_ type: String, _ body: String) -> Int {
            site.request(
                "POST /files/ HTTP/1.1\r\nHost: a\r\nContent-Type: \(type)\r\nContent-Length: \(body.utf8.count)\r\n\r\n\(body)"
            ).first?.status ?? 0
        }
        #expect(post("application/x-www-form-urlencoded", "a=b") == 415)
        #expect(post("multipart/form-data", "x") == 415)
        #expect(post("multipart/form-data; boundary=\"\"", "x") == 415)
        #expect(post("multipart/form-data; boundary=x", "no boundary at all") == 400)
        #expect(post("multipart/form-data; boundary=x", "--x\r\nNo: name\r\n\r\n--x--") == 400)
        #expect(post("multipart/form-data; boundary=x", "--x" + String(repeating: "y", count: 300)) == 400)
        #expect(post("multipart/form-data; boundary=x", "--x\r\n" + String(repeating: "y", count: 9000)) == 400)
        let field = "--x\r\nContent-Disposition: form-data; name=a\r\n\r\n" + String(repeating: "y", count: 9000)
        #expect(post("multipart/form-data; boundary=x", field) == 400)
    }

    @Test("Removal: files, empty folders, and nothing else")
    func removes() throws {
        let site = try writable()
        try site.write("f", "x")
        try site.write("full/x", "x")
        try FileManager.default.createDirectory(
            at: site.folder.appendingPathComponent("empty"), withIntermediateDirectories: true)
        func delete(_ path: String) -> Int { site.request("DELETE \(path) HTTP/1.1\r\nHost: a\r\n\r\n")[0].status }
        #expect(delete("/files/f") == 204)
        #expect(delete("/files/f") == 404)
        #expect(delete("/files/empty/") == 204)
        #expect(delete("/files/full") == 409)
        #expect((400..<500).contains(delete("/files/")))
        #expect(site.names == ["full"])
    }

    @Test("Conditions count for PUT and DELETE too (RFC 9110 §13.2.1)")
    func conditions() throws {
        let site = try writable { $0.mayReplace = true }
        try site.write("f.txt", String(repeating: "old ", count: 1000))
        func delete(_ headers: String) -> Int {
            site.request("DELETE /files/f.txt HTTP/1.1\r\nHost: a\r\n\(headers)\r\n")[0].status
        }
        let tag = try #require(site.get("/files/f.txt").headers["etag"])
        let gzipped = try #require(site.get("/files/f.txt", "Accept-Encoding: gzip\r\n").headers["etag"])
        #expect(tag != gzipped)
        for condition in [
            "If-Match: \"other\"", "If-None-Match: *", "If-None-Match: \(tag)", "If-None-Match: \(gzipped)",
            "If-Unmodified-Since: Sun, 06 Nov 1994 08:49:37 GMT",
        ] {
            #expect(site.request(put("/files/f.txt", "new", condition + "\r\n"))[0].status == 412, "\(condition)")
            #expect(delete(condition + "\r\n") == 412, "\(condition)")
        }
        #expect(site.request(put("/files/none", "new", "If-Match: *\r\n"))[0].status == 412)
        #expect(site.names == ["f.txt"] && site.read("f.txt")?.hasPrefix("old") == true)
        #expect(site.request(put("/files/f.txt", "newer", "If-Match: \(gzipped)\r\n"))[0].status == 204)
        #expect(site.request(put("/files/g", "new", "If-None-Match: *\r\n"))[0].status == 201)
        let now = try #require(site.get("/files/f.txt").headers["etag"])
        #expect(delete("If-Match: \"x\", \(now)\r\n") == 204)
        #expect(site.names == ["g"])
    }

    @Test("What came while a body was on its way is not overwritten against the conditions")
    func conditionsAtTheEnd() throws {
        let site = try writable { $0.mayReplace = true }
        try site.write("old", "old")
        let tag = try #require(site.get("/files/old").headers["etag"])
        for (path, condition) in [("/files/new", "If-None-Match: *"), ("/files/old", "If-Match: \(tag)")] {
            let whole = Array(put(path, "mine", condition + "\r\n").utf8)
            #expect(site.exchange(Array(whole.dropLast())) == [])
            let other = HTTPSession(services: [site.service], isSecure: false, maximumHead: 16384) { 784_111_777 }
            let theirs = Array(put(path, "theirs", condition + "\r\n").utf8)
            #expect(theirs.withUnsafeBytes { other.receive($0) } == theirs.count)
            let answer = String(decoding: site.exchange(Array(whole.suffix(1))), as: UTF8.self)
            #expect(answer.hasPrefix("HTTP/1.1 412 "))
        }
        #expect(site.names == ["new", "old"])
        #expect(site.read("new") == "theirs" && site.read("old") == "theirs")
    }

    @Test("A part of a file is not taken for the whole (RFC 9110 §14.5)")
    func partialPut() throws {
        let site = try writable()
        #expect(site.request(put("/files/f", "new", "Content-Range: bytes 0-2/9\r\n"))[0].status == 400)
        #expect(site.names == [])
    }

    @Test("Who uses a wrong method hears of the right ones (RFC 9110 §15.5.6)")
    func allowed() throws {
        let site = try writable()
        try site.write("f", "x")
        for (text, allowed) in [
            (put("/files/", "x"), "GET, HEAD, POST, DELETE"), (form("/files/f", []), "GET, HEAD, PUT, DELETE"),
            ("PATCH /files/f HTTP/1.1\r\nHost: a\r\n\r\n", "GET, HEAD, PUT, DELETE"),
            ("PATCH /files/ HTTP/1.1\r\nHost: a\r\n\r\n", "GET, HEAD, POST, DELETE"),
        ] {
            let answer = site.request(text)[0]
            #expect(answer.status == 405 && answer.headers["allow"] == allowed, "\(text)")
        }
    }

    @Test("The button beside a name removes that one, whatever is in the name")
    func odd() throws {
        let names: [[UInt8]] = [
            Array("a\u{1}b".utf8), Array("a\u{FFFD}b".utf8), Array("a\u{202E}b".utf8), [0x61, 0xFF, 0x62],
            Array("50%25 \"<&'\n".utf8),
        ]
        for name in names {
            let site = try writable()
            for other in names {
                let path = Array("\(site.folder.path)/".utf8) + other + [0]
                let file = path.withUnsafeBytes { open($0.bindMemory(to: CChar.self).baseAddress!, O_CREAT, 0o600) }
                #expect(file >= 0)
                close(file)
            }
            let page = site.get("/files/").text
            let link = "./\(PercentEncoding.encode(name))\""
            let row = try #require(page.split(separator: "\n").first { $0.contains(link) })
            let button = try #require(row.components(separatedBy: "name=\"remove\" value=\"").last)
            let value = String(button.prefix { $0 != "\"" })
            let answer = site.request(form("/files/", [("token", nil, "secret-token"), ("remove", nil, value)]))
            #expect(answer[0].status == 303)
            let left = site.get("/files/").text
            #expect(!left.contains(link))
            for other in names where other != name { #expect(left.contains("./\(PercentEncoding.encode(other))\"")) }
        }
    }

    @Test(
        "Names of files are taken as they are sent",
        arguments: ["a\u{2028}b.txt", "\u{301}x.txt", "a;b=c.txt", "a\u{85}b", "ü.txt"])
    func fileNames(name: String) throws {
        let site = try writable()
        let answer = site.request(form("/files/", [("token", nil, "secret-token"), ("file", name, "x")]))[0]
        #expect(answer.status == 303)
        #expect(site.names.map { Array($0.utf8) } == [Array(name.utf8)])
    }

    @Test("Many small parts take a time that grows with their number alone")
    func manyParts() throws {
        func time(_ count: Int) throws -> Duration {
            let part = "--x\r\nContent-Disposition: form-data; name=a\r\n\r\n\r\n"
            let body = Array((String(repeating: part, count: count) + "--x--").utf8)
            return try ContinuousClock().measure {
                var reader = MultipartReader(boundary: "x")
                body.withUnsafeBytes { reader.feed($0) }
                var parts = 0
                reading: while true {
                    switch reader.next() {
                    case .part: parts += 1
                    case .end: break reading
                    case .needMore, .failed: throw CocoaError(.coderInvalidValue)
                    default: break
                    }
                }
                #expect(parts == count)
            }
        }
        let few = try (0..<5).map { _ in try time(1000) }.min() ?? .zero
        let many = try (0..<3).map { _ in try time(32_000) }.min() ?? .zero
        #expect(many < few * 32 * 5, "\(few) for 1000, \(many) for 32000")
    }
}
