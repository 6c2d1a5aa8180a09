import Foundation
import Testing

@testable import HTTPService

@Suite struct DownloadTests {
    @Test("A file comes as it is, with its type, length, tag and date")
    func wholeFile() throws {
        let site = try Site()
        try site.write("a b.txt", "hello")
        let answer = site.get("/files/a%20b.txt")
        #expect(answer.status == 200)
        #expect(answer.text == "hello")
        #expect(answer.headers["content-type"] == "text/plain; charset=utf-8")
        #expect(answer.headers["content-disposition"] == "inline; filename*=UTF-8''a%20b.txt")
        #expect(answer.headers["accept-ranges"] == "bytes")
        #expect(answer.headers["date"] == "Sun, 06 Nov 1994 08:49:37 GMT")
        #expect(answer.headers["x-content-type-options"] == "nosniff")
        #expect(answer.headers["content-security-policy"]?.hasPrefix("sandbox") == true)
        #expect(site.get("/files/a%20b.txt?download").headers["content-disposition"]?.hasPrefix("attachment") == true)
    }

    @Test("HEAD gives the head of GET, and nothing else")
    func head() throws {
        let site = try Site()
        try site.write("f", "hello")
        let answers = site.request(
            "HEAD /files/f HTTP/1.1\r\nHost: a\r\n\r\nHEAD /files/no HTTP/1.1\r\nHost: a\r\n\r\n", isHead: true)
        #expect(answers.map(\.status) == [200, 404])
        #expect(answers[0].headers["content-length"] == "5")
    }

    @Test("Large files, empty files, and requests in any pieces")
    func sizes() throws {
        let site = try Site()
        let large = String(repeating: "0123456789abcdef", count: 50_000)
        try site.write("large.bin", large)
        try site.write("empty.bin", "")
        let requests =
            "GET /files/large.bin HTTP/1.1\r\nHost: a\r\n\r\nGET /files/empty.bin HTTP/1.1\r\nHost: a\r\n\r\n"
        for size in [1, 7, .max] {
            let answers = site.request(requests, pieces: size)
            #expect(answers.map(\.status) == [200, 200])
            #expect(answers.first?.text == large)
            #expect(answers.last?.headers["content-length"] == "0")
        }
    }

    @Test("Ranges: one, several, from the end, outside, and those that are ignored")
    func ranges() throws {
        let site = try Site()
        try site.write("r.bin", "0123456789")
        func range(_ text: String) -> Answer { site.get("/files/r.bin", "Range: \(text)\r\n") }
        let one = range("bytes=2-4")
        #expect(one.status == 206 && one.text == "234" && one.headers["content-range"] == "bytes 2-4/10")
        #expect(range("bytes=7-").text == "789")
        #expect(range("bytes=-3").text == "789")
        #expect(range("bytes=-30").text == "0123456789")
        #expect(range("bytes=8-999").text == "89")
        let outside = range("bytes=10-")
        #expect(outside.status == 416 && outside.headers["content-range"] == "bytes */10")
        for ignored in [
            "bytes=", "bytes=a-b", "bytes=4-2", "lines=1-2", "bytes=0-4,2-6", "bytes=1-99999999999999999999",
        ] {
            #expect(range(ignored).status == 200, "\(ignored)")
        }
        let several = range("bytes=0-1, 5-6,-1")
        #expect(several.status == 206)
        let boundary = try #require(several.headers["content-type"]?.components(separatedBy: "boundary=").last)
        let parts = several.text.components(separatedBy: "--\(boundary)")
        #expect(parts.count == 5 && parts.last == "--\r\n")
        #expect(parts[1].contains("Content-Range: bytes 0-1/10\r\n\r\n01"))
        #expect(parts[3].contains("Content-Range: bytes 9-9/10\r\n\r\n9"))
    }

    @Test("Conditions are those of RFC 9110, in its order")
    func conditions() throws {
        let site = try Site()
        try site.write("c.bin", "0123456789")
        let first = site.get("/files/c.bin")
        let tag = try #require(first.headers["etag"])
        let date = try #require(first.headers["last-modified"])
        let old = "Sun, 06 Nov 1994 08:49:37 GMT"
        func status(_ headers: String) -> Int { site.get("/files/c.bin", headers).status }
        #expect(status("If-None-Match: \(tag)\r\n") == 304)
        #expect(status("If-None-Match: \"x\", W/\(tag)\r\n") == 304)
        #expect(status("If-None-Match: *\r\n") == 304)
        #expect(status("If-None-Match: \"x\"\r\nIf-Modified-Since: \(date)\r\n") == 200)
        #expect(status("If-Modified-Since: \(date)\r\n") == 304)
        #expect(status("If-Modified-Since: \(old)\r\n") == 200)
        #expect(status("If-Modified-Since: never\r\n") == 200)
        #expect(status("If-Match: \(tag)\r\n") == 200)
        #expect(status("If-Match: \"x\"\r\n") == 412)
        #expect(status("If-Unmodified-Since: \(old)\r\n") == 412)
        #expect(status("Range: bytes=0-1\r\nIf-Range: \(tag)\r\n") == 206)
        #expect(status("Range: bytes=0-1\r\nIf-Range: \(date)\r\n") == 206)
        #expect(status("Range: bytes=0-1\r\nIf-Range: \"x\"\r\n") == 200)
        #expect(status("Range: bytes=0-1\r\nIf-Range: \(old)\r\n") == 200)
    }

    @Test("Texts are compressed for those who can read it, in chunks")
    func gzip() throws {
        let site = try Site()
        let text = String(repeating: "all work and no play ", count: 20_000)
        try site.write("t.txt", text)
        try site.write("t.png", text)
        let answer = site.get("/files/t.txt", "Accept-Encoding: br, gzip;q=0.5\r\n")
        #expect(answer.headers["content-encoding"] == "gzip")
        #expect(answer.headers["transfer-encoding"] == "chunked")
        #expect(answer.body.count < text.utf8.count / 20)
        let file = site.folder.appendingPathComponent("out.gz")
        try Data(answer.body).write(to: file)
        let process = Process()
        process.executableURL = URL(fileURLWithPath: "/usr/bin/env")
        process.arguments = ["gzip", "-dc", file.path]
        let pipe = Pipe()
        process.standardOutput = pipe
        try process.run()
        #expect(String(decoding: pipe.fileHandleForReading.readDataToEndOfFile(), as: UTF8.self) == text)
        process.waitUntilExit()
        #expect(process.terminationStatus == 0)
        #expect(site.get("/files/t.txt", "Accept-Encoding: gzip;q=0\r\n").headers["content-encoding"] == nil)
        #expect(site.get("/files/t.txt").headers["content-encoding"] == nil)
        #expect(site.get("/files/t.png", "Accept-Encoding: gzip\r\n").headers["content-encoding"] == nil)
        #expect(site.get("/files/t.txt", "Accept-Encoding: gzip\r\nRange: bytes=0-2\r\n").text == "all")
    }

    @Test("Dates in all three forms")
    func dates() {
        let seconds = 784_111_777
        #expect(HTTPDate.text(seconds) == "Sun, 06 Nov 1994 08:49:37 GMT")
        for text in [
            "Sun, 06 Nov 1994 08:49:37 GMT", "Sunday, 06-Nov-94 08:49:37 GMT", "Sun Nov  6 08:49:37 1994",
        ] { #expect(HTTPDate.parse(text) == seconds, "\(text)") }
        for text in [
            "", "GMT", "Sun, 06 Nov 1994 08:49:37", "Sun, 99 Nov 1994 08:49:37 GMT", "Sun, 06 Foo 1994 08:49:37 GMT",
            "Sun, 06 Nov 1994 25:49:37 GMT", "Sun, 06 Nov 99999 08:49:37 GMT", "a b c d e f",
        ] {
            #expect(HTTPDate.parse(text) == nil, "\(text)")
        }
    }

    @Test("A file that becomes shorter while it is sent ends the connection")
    func truncated() throws {
        let site = try Site()
        let size = 1_000_000
        try site.write("x.bin", String(repeating: "x", count: size))
        _ = Array("GET /files/x.bin HTTP/1.1\r\nHost: a\r\n\r\n".utf8).withUnsafeBytes { site.session.receive($0) }
        truncate(site.folder.appendingPathComponent("x.bin").path, 1000)
        // Without regions, as over TLS.
        var buffer = [UInt8](repeating: 0, count: 65536)
        var total = 0
        for _ in 0..<100 where site.session.hasOutput {
            total += buffer.withUnsafeMutableBytes { site.session.fill($0, usingRegions: false) }
        }
        #expect(total < 2000)
        #expect(site.session.isFinished)
    }
}
