import Testing

@testable import WebSocketProtocol

@Suite("Bodies that are skipped")
struct HTTPBodySkipperTests {
    private func head(_ lines: [String], status: Int = 401, minor: Int = 1) -> HTTPResponseHead {
        HTTPResponseHead(
            status: status, reason: "", minorVersion: minor,
            headers: HTTPHeaders(
                lines.map { line in
                    let parts = line.split(separator: ":", maxSplits: 1)
                    return HTTPHeader(String(parts[0]), String(parts[1]))
                }))
    }

    /// How many bytes were taken, and the end; the same whole and byte by byte.
    private func skip(_ head: HTTPResponseHead, _ body: String, maximum: Int = 65536) -> (Int, HTTPBodySkipper.State) {
        var whole = HTTPBodySkipper(head, maximum: maximum)
        let bytes = Array(body.utf8)
        let taken = bytes.withUnsafeBytes { whole.feed($0) }
        var single = HTTPBodySkipper(head, maximum: maximum)
        var count = 0
        for byte in bytes { count += [byte].withUnsafeBytes { single.feed($0) } }
        #expect(whole.state == single.state)
        if whole.state != .unusable { #expect(count == taken) }
        return (taken, whole.state)
    }

    @Test func lengths() {
        #expect(skip(head(["Content-Length:5"]), "helloHTTP/1.1") == (5, .done))
        #expect(skip(head(["Content-Length:5"]), "hel") == (3, .reading))
        #expect(skip(head(["Content-Length:0"]), "HTTP") == (0, .done))
        #expect(skip(head(["Content-Length:65537"]), "x").1 == .unusable)
        #expect(skip(head([]), "x").1 == .unusable)
        #expect(skip(head(["Content-Length:5", "Connection:close"]), "hello").1 == .unusable)
        #expect(skip(head(["Content-Length:5"], minor: 0), "hello").1 == .unusable)
        #expect(skip(head([], status: 204), "x") == (0, .done))
    }

    @Test(arguments: [
        ("0\r\n\r\n", HTTPBodySkipper.State.done), ("5\r\nhello\r\n0\r\n\r\n", .done),
        ("5;a=b\r\nhello\r\n0;x=\"y\"\r\nTrailer: v\r\nOther:\r\n\r\n", .done),
        ("A\r\n0123456789\r\n000\r\n\r\n", .done),
        ("5 \r\nhello\r\n0\r\n\r\n", .done), ("5\r\nhel", .reading), ("", .reading), ("5\r\nhello\r\n", .reading),
        ("x\r\n", .unusable), ("\r\n", .unusable), ("5\nhello", .unusable), ("5\r\nhelloX", .unusable),
        ("-1\r\n", .unusable), ("0x5\r\n", .unusable), ("FFFFFFFFFFFFFFFFF\r\n", .unusable), ("5\rX", .unusable),
        ("0\r\n\r\r", .unusable), ("0\r\n: v\r\n\r\n", .unusable), ("1;\u{1}\r\n", .unusable),
    ])
    func chunks(_ body: String, _ state: HTTPBodySkipper.State) {
        let (taken, seen) = skip(head(["Transfer-Encoding:chunked"]), body)
        #expect(seen == state)
        if state == .done {
            #expect(taken == body.utf8.count)
            #expect(skip(head(["Transfer-Encoding:chunked"]), body + "HTTP/1.1 401") == (body.utf8.count, .done))
        }
    }

    @Test func tooMuch() {
        let body = "100\r\n" + String(repeating: "x", count: 256)
        #expect(skip(head(["Transfer-Encoding:chunked"]), body, maximum: 200).1 == .unusable)
        #expect(skip(head(["Transfer-Encoding:gzip, chunked"]), "0\r\n\r\n").1 == .unusable)
        #expect(skip(head(["Transfer-Encoding:chunked", "Connection:keep-alive, Close"]), "0\r\n\r\n").1 == .unusable)
    }
}
