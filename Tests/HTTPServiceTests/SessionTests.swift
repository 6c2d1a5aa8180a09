import Foundation
import Testing
import WebSocketProtocol

@testable import HTTPService

@Suite struct SessionTests {
    @Test("Connections are kept unless the client says otherwise")
    func keepAlive() throws {
        let site = try Site()
        try site.write("f", "x")
        #expect(site.get("/files/f").headers["connection"] == nil)
        #expect(!site.session.isFinished && site.session.isIdle)
        #expect(site.get("/files/f", "Connection: close\r\n").headers["connection"] == "close")
        #expect(site.session.isFinished)
        let old = try Site()
        try old.write("f", "x")
        #expect(old.request("GET /files/f HTTP/1.0\r\n\r\n")[0].headers["connection"] == "close")
        #expect(old.session.isFinished)
    }

    @Test("A body that nobody wants is skipped if it is small, and ends the connection if it is not")
    func unwanted() throws {
        let site = try Site()
        try site.write("f", "x")
        let body = "GET /files/f HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\n\r\nhello"
        let chunked = "GET /files/f HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nhi\r\n0\r\n\r\n"
        for size in [1, 3, .max] {
            let answers = site.request(body + chunked + "GET /files/none HTTP/1.1\r\nHost: a\r\n\r\n", pieces: size)
            #expect(answers.map(\.status) == [200, 200, 404])
        }
        let large = "PUT /files/f HTTP/1.1\r\nHost: a\r\nContent-Length: 99999999\r\n\r\n"
        #expect(site.request(large)[0].headers["connection"] == "close")
        #expect(site.session.isFinished)
    }

    @Test("Who waits for 100 Continue gets it, or the answer at once")
    func expectation() throws {
        var options = FileService.Options()
        options.isWritable = true
        let site = try Site(options)
        let head = "PUT /files/f HTTP/1.1\r\nHost: a\r\nExpect: 100-continue\r\nContent-Length: 2\r\n\r\n"
        #expect(String(decoding: site.exchange(Array(head.utf8)), as: UTF8.self) == "HTTP/1.1 100 Continue\r\n\r\n")
        #expect(Site.parse(site.exchange(Array("ab".utf8)))[0].status == 201)
        let refused = site.request(head)
        #expect(refused[0].status == 409 && refused[0].headers["connection"] == "close")
        let other = try Site(options)
        #expect(other.request("GET /files/ HTTP/1.1\r\nHost: a\r\nExpect: magic\r\n\r\n")[0].status == 417)
    }

    @Test(
        "What two programs could read in two ways is refused, and the connection ends",
        arguments: [
            "GET /files/ HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\nContent-Length: 6\r\n\r\n",
            "GET /files/ HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n",
            "GET /files/ HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: gzip, chunked\r\n\r\n",
            "GET /files/ HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: xchunked\r\n\r\n",
            "GET /files/ HTTP/1.1\r\nHost: a\r\nContent-Length: +5\r\n\r\n",
            "GET /files/ HTTP/1.1\r\nHost: a\r\nContent-Length: 0x5\r\n\r\n",
            "GET /files/ HTTP/1.1\r\nHost : a\r\n\r\n", "GET /files/ HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n",
            "GET /files/ HTTP/1.1\r\nHost: a\r\nX: y\n\r\n", "GET /files/ HTTP/1.1\r\n\r\n",
            "GET /files/ HTTP/1.1\r\nHost: a\r\n folded\r\n\r\n", "GET  /files/ HTTP/1.1\r\nHost: a\r\n\r\n",
            "GET /files/ HTTP/2.0\r\nHost: a\r\n\r\n",
        ])
    func ambiguous(text: String) throws {
        let site = try Site()
        try site.write("f", "x")
        let answers = site.request(text + "GET /files/f HTTP/1.1\r\nHost: a\r\n\r\n")
        #expect(answers.count == 1)
        #expect([400, 505].contains(answers[0].status))
        #expect(site.session.isFinished)
    }

    @Test(
        "Bad chunks end the connection",
        arguments: [
            "-1\r\n", "g\r\n", "\r\n", "1\r\nab\r\n", "ffffffffffffffffff\r\n", " 1\r\nx\r\n0\r\n\r\n",
            "1 1\r\nx\r\n0\r\n\r\n", "1;a\u{0}b\r\nx\r\n0\r\n\r\n", "1\r\nx\r\n0\r\nA: b\n\r\n\r\n",
            "1\r\nx\r\n0\r\nA: b\n\nGET / HTTP/1.1\r\n\r\n", "1\r\nx\r\n0\r\nA: b\rC: d\r\n\r\n",
        ])
    func chunks(text: String) throws {
        var options = FileService.Options()
        options.isWritable = true
        let site = try Site(options)
        let answers = site.request("PUT /files/f HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n" + text)
        #expect(answers.map(\.status) == [400])
        #expect(site.session.isFinished && site.names == [])
    }

    @Test("Each request but the first is asked for its right")
    func gate() throws {
        let site = try Site()
        try site.write("f", "x")
        let session = HTTPSession(
            services: [site.service], isSecure: false, maximumHead: 4096,
            gate: {
                $0["Authorization"] == "right" ? nil : HTTPSession.unauthorized(HTTPHeader("WWW-Authenticate", "Basic"))
            }
        ) { 0 }
        let first = HTTPRequestHead(method: "GET", target: "/files/f", headers: HTTPHeaders([HTTPHeader("Host", "a")]))
        session.begin(first)
        var output: [UInt8] = []
        var buffer = [UInt8](repeating: 0, count: 4096)
        func drain() {
            while session.hasOutput {
                output += buffer[..<buffer.withUnsafeMutableBytes { session.fill($0, usingRegions: false) }]
            }
        }
        drain()
        for header in ["Authorization: right\r\n", "", "Authorization: right\r\n"] {
            _ = Array("GET /files/f HTTP/1.1\r\nHost: a\r\n\(header)\r\n".utf8).withUnsafeBytes { session.receive($0) }
            drain()
        }
        let answers = Site.parse(output)
        #expect(answers.map(\.status) == [200, 200, 401])
        #expect(answers[2].headers["www-authenticate"] == "Basic" && answers[2].headers["connection"] == "close")
    }

    @Test("HTTP/1.0 gets no chunks, and no 100 Continue (RFC 9112 §6.1, RFC 9110 §10.1.1)")
    func old() throws {
        var options = FileService.Options()
        options.isWritable = true
        let site = try Site(options)
        let content = String(repeating: "text ", count: 1000)
        try site.write("f.txt", content)
        let gzip = site.exchange(Array("GET /files/f.txt HTTP/1.0\r\nAccept-Encoding: gzip\r\n\r\n".utf8))
        let answer = try #require(Site.parse(gzip).first)
        #expect(answer.headers["transfer-encoding"] == nil && answer.headers["connection"] == "close")
        #expect(answer.headers["content-encoding"] == "gzip")
        let start = try #require(gzip.indices.first { gzip[$0...].starts(with: [13, 10, 13, 10]) })
        #expect(gzip[(start + 4)...].starts(with: [0x1F, 0x8B]))
        #expect(site.session.isFinished)
        let other = try Site(options)
        let put = "PUT /files/g HTTP/1.0\r\nExpect: 100-continue\r\nContent-Length: 2\r\n\r\nab"
        #expect(String(decoding: other.exchange(Array(put.utf8)), as: UTF8.self).hasPrefix("HTTP/1.1 201 "))
    }

    @Test("A bad request behind a HEAD gets an answer with a body")
    func badBehindHead() throws {
        let site = try Site()
        try site.write("f", "x")
        let head = "HEAD /files/f HTTP/1.1\r\nHost: a\r\n\r\n"
        _ = site.exchange(Array(head.utf8))
        let answer = site.request("nonsense\r\n\r\n")[0]
        #expect(answer.status == 400)
        #expect(answer.headers["content-length"] == "\(answer.body.count)" && !answer.body.isEmpty)
    }

    @Test("A buffer of any size can be filled")
    func smallBuffers() throws {
        let site = try Site()
        try site.write("f.txt", String(repeating: "text ", count: 1000))
        for size in [1, 19, 20, 21, 100, 2000] {
            let session = HTTPSession(services: [site.service], isSecure: false, maximumHead: 4096) { 0 }
            let request = Array("GET /files/f.txt HTTP/1.1\r\nHost: a\r\nAccept-Encoding: gzip\r\n\r\n".utf8)
            _ = request.withUnsafeBytes { session.receive($0) }
            var buffer = [UInt8](repeating: 0, count: size)
            var output: [UInt8] = []
            for _ in 0..<10_000 where session.hasOutput {
                output += buffer[..<buffer.withUnsafeMutableBytes { session.fill($0) }]
            }
            if size > 20 { #expect(output.suffix(5) == Array("0\r\n\r\n".utf8)[...]) }
            session.abandon()
        }
    }

    @Test("Random bytes never trap")
    func noise() throws {
        var options = FileService.Options()
        options.isWritable = true
        let site = try Site(options)
        try site.write("f", "0123456789")
        var generator = SystemRandomNumberGenerator()
        let words = [
            "GET ", "PUT ", "POST ", "/files/f", "/files/", " HTTP/1.1\r\n", "Host: a\r\n", "\r\n", "Range: bytes=",
            "1-2", "-",
            ",", "Content-Length: ", "5", "Transfer-Encoding: chunked\r\n", "0\r\n\r\n", "x", "%", "\0",
            "9999999999999999",
            "Content-Type: multipart/form-data; boundary=b\r\n", "--b", "--b--",
            "Content-Disposition: form-data; name=token\r\n",
        ]
        for _ in 0..<3000 {
            let session = HTTPSession(services: [site.service], isSecure: false, maximumHead: 4096) { 0 }
            var held: [UInt8] = []
            var buffer = [UInt8](repeating: 0, count: 2048)
            for _ in 0..<Int.random(in: 1...25, using: &generator) {
                held += Array((words.randomElement(using: &generator) ?? "").utf8)
                held.removeFirst(held.withUnsafeBytes { session.receive($0) })
                for _ in 0..<64 where session.hasOutput {
                    _ = buffer.withUnsafeMutableBytes { session.fill($0, usingRegions: false) }
                }
            }
            session.abandon()
        }
    }
}
