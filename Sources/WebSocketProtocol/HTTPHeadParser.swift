/// Takes one HTTP/1.x head off the start of a buffer (RFC 9112), strictly.
///
/// Overview: give it the bytes that are there; it answers with the head and how many bytes that took, or `.incomplete`.
/// The bytes behind the head are the caller's. Behind a whole head it is ready for the next one.
///
/// Function: what two programs could read in two ways is refused, whatever RFC 9112 would let pass: bare line feeds and
/// carriage returns, control characters, folded lines, space before a colon, empty lines in front, several Host lines,
/// contradicting or unreadable lengths, a length beside a transfer coding. At most 100 header lines.
///
/// Implementation: a scanner looks at each byte once, over all calls, for the line structure; only a head that is whole
/// is read into texts. A bad byte is reported as soon as it is there.
public struct HTTPHeadParser: Sendable {
    /// Which kind of head is expected.
    public enum Kind: Sendable {
        case request
        case response
    }

    private enum Place: UInt8 {
        case headStart
        case line
        /// Behind a carriage return at the end of a line with content.
        case lineEnd
        case lineStart
        /// Behind the carriage return of the empty line.
        case headEnd
    }

    /// The most header lines of a head.
    static let maximumLines = 100

    private let kind: Kind
    private let maximum: Int
    private var scanned = 0
    private var place = Place.headStart

    /// `maximum`: bytes of the whole head, its empty line included. The caller's buffer never needs more.
    public init(_ kind: Kind, maximum: Int = 16384) {
        self.kind = kind
        self.maximum = max(0, maximum)
    }

    /// Nothing of a head has come yet.
    public var isAtStart: Bool { scanned == 0 }

    /// Looks for a head at the start of `bytes`.
    ///
    /// `bytes` starts with the head's first byte in every call: as long as the answer is `.incomplete`, call again with
    /// the same bytes and more behind them. What was looked at is not looked at again.
    public mutating func feed(_ bytes: UnsafeRawBufferPointer) -> HTTPHeadEvent {
        let end = min(bytes.count, maximum)
        while scanned < end {
            let byte = bytes[scanned]
            switch place {
            case .headStart:
                if let text = problem(atStart: byte) { return failed(400, text) }
                place = .line
            case .line:
                if byte == 0x0D {
                    place = .lineEnd
                } else if byte == 0x0A {
                    return failed(400, "line feed without carriage return")
                } else if !HTTPSyntax.isValue(byte) {
                    return failed(400, "control character")
                }
            case .lineEnd:
                guard byte == 0x0A else { return failed(400, "carriage return without line feed") }
                place = .lineStart
            case .lineStart:
                if byte == 0x0D {
                    place = .headEnd
                } else if HTTPSyntax.isSpace(byte) {
                    return failed(400, "folded header line")
                } else if !HTTPSyntax.isToken(byte) {
                    return failed(400, "header line that does not start with a name")
                } else {
                    place = .line
                }
            case .headEnd:
                guard byte == 0x0A else { return failed(400, "carriage return without line feed") }
                let size = scanned + 1
                scanned = 0
                place = .headStart
                return read(HTTPSyntax.part(bytes, 0, size))
            }
            scanned += 1
        }
        if bytes.count >= maximum { return failed(431, "larger than the limit of \(maximum) bytes") }
        return .incomplete
    }

    private func problem(atStart byte: UInt8) -> String? {
        switch kind {
        case .request:
            if byte == 0x16 { return "it looks like TLS; this port speaks plain text" }
            return HTTPSyntax.isToken(byte) ? nil : "it does not start with a method"
        case .response:
            if byte == 0x15 || byte == 0x16 { return "it looks like TLS; use a wss URL" }
            return byte == UInt8(ascii: "H") ? nil : "it does not start with HTTP"
        }
    }

    private func failed(_ status: Int, _ what: String) -> HTTPHeadEvent {
        switch kind {
        case .request: .failed(status: status, text: "bad HTTP request: \(what)")
        case .response: .failed(status: 0, text: "bad HTTP response: \(what)")
        }
    }

    /// Reads a head whose line structure is right; it ends with an empty line.
    private func read(_ head: UnsafeRawBufferPointer) -> HTTPHeadEvent {
        var lines: [HTTPHeader] = []
        var first: UnsafeRawBufferPointer?
        var start = 0
        while start < head.count - 2 {
            var end = start
            while end < head.count, head[end] != 0x0D { end += 1 }
            let line = HTTPSyntax.part(head, start, end)
            start = end + 2
            guard first != nil else {
                first = line
                continue
            }
            guard lines.count < Self.maximumLines else {
                return failed(431, "more than \(Self.maximumLines) header lines")
            }
            guard let colon = line.firstIndex(of: UInt8(ascii: ":")) else {
                return failed(400, "header line without a colon")
            }
            let name = HTTPSyntax.part(line, 0, colon)
            guard HTTPSyntax.isToken(name) else { return failed(400, "header name that is not a token") }
            let value = HTTPSyntax.trimmed(HTTPSyntax.part(line, colon + 1, line.count))
            lines.append(HTTPHeader(HTTPSyntax.text(name), HTTPSyntax.text(value)))
        }
        guard let first else { return failed(400, "empty head") }
        let headers = HTTPHeaders(lines)
        if let text = lengthProblem(headers) { return failed(400, text) }
        switch kind {
        case .request: return request(first, headers, consumed: head.count)
        case .response: return response(first, headers, consumed: head.count)
        }
    }

    /// What could make two readers disagree on where the message ends (RFC 9112 §6).
    private func lengthProblem(_ headers: HTTPHeaders) -> String? {
        let lengths = headers.all("Content-Length")
        if let length = lengths.first {
            guard lengths.count == 1 else { return "several Content-Length lines" }
            guard HTTPSyntax.number(length) != nil else { return "Content-Length that is not a number" }
            guard headers["Transfer-Encoding"] == nil else { return "Content-Length beside Transfer-Encoding" }
        }
        let codings = headers.elements("Transfer-Encoding")
        // Nothing behind a response is read, so its coding does not matter.
        guard kind == .request, headers["Transfer-Encoding"] != nil else { return nil }
        guard let last = codings.last, codings.count == 1, HTTPSyntax.equal(last, "chunked") else {
            return "Transfer-Encoding other than chunked"
        }
        return nil
    }

    private func request(
        _ line: UnsafeRawBufferPointer, _ headers: HTTPHeaders, consumed: Int
    ) -> HTTPHeadEvent {
        let parts = line.split(separator: 0x20, omittingEmptySubsequences: false)
        guard parts.count == 3 else { return failed(400, "request line that is not \"method target version\"") }
        guard HTTPSyntax.isToken(parts[0]) else { return failed(400, "method that is not a token") }
        guard let minor = minorVersion(parts[2]) else {
            guard parts[2].starts(with: "HTTP/".utf8) else { return failed(400, "request line without a version") }
            return failed(505, "version other than HTTP/1.0 and HTTP/1.1")
        }
        let method = String(decoding: parts[0], as: UTF8.self)
        guard isTarget(parts[1], method: method) else { return failed(400, "request target that is not allowed") }
        if minor == 0, headers["Transfer-Encoding"] != nil { return failed(400, "Transfer-Encoding in HTTP/1.0") }
        let hosts = headers.all("Host")
        guard hosts.count <= 1 else { return failed(400, "several Host lines") }
        if let host = hosts.first {
            guard isHost(host) else { return failed(400, "Host that is not a host name and a port") }
        } else if minor > 0 {
            return failed(400, "no Host line")
        }
        let target = String(decoding: parts[1], as: UTF8.self)
        return .request(
            HTTPRequestHead(method: method, target: target, minorVersion: minor, headers: headers), consumed: consumed)
    }

    private func response(
        _ line: UnsafeRawBufferPointer, _ headers: HTTPHeaders, consumed: Int
    ) -> HTTPHeadEvent {
        guard let minor = minorVersion(line.prefix(8)), line.count >= 12, line[8] == 0x20 else {
            return failed(0, "status line that does not start with HTTP/1.1 and a status")
        }
        let digits = HTTPSyntax.part(line, 9, 12)
        guard digits.allSatisfy({ HTTPSyntax.isDigit($0) }), digits[0] != UInt8(ascii: "0"),
            line.count == 12 || line[12] == 0x20
        else { return failed(0, "status that is not a number of three digits") }
        let status = digits.reduce(0) { $0 * 10 + Int($1 & 0x0F) }
        let reason = HTTPSyntax.text(HTTPSyntax.trimmed(HTTPSyntax.part(line, 12, line.count)))
        return .response(
            HTTPResponseHead(status: status, reason: reason, minorVersion: minor, headers: headers),
            consumed: consumed)
    }

    private func minorVersion(_ text: some Collection<UInt8>) -> Int? {
        if text.elementsEqual("HTTP/1.1".utf8) { return 1 }
        return text.elementsEqual("HTTP/1.0".utf8) ? 0 : nil
    }

    /// The four forms of RFC 9112 §3.2, in visible ASCII and without a fragment.
    private func isTarget(_ target: some Collection<UInt8>, method: String) -> Bool {
        guard let first = target.first,
            target.allSatisfy({ $0 > 0x20 && $0 < 0x7F && $0 != UInt8(ascii: "#") })
        else { return false }
        if first == UInt8(ascii: "/") { return true }
        if method == "CONNECT" { return true }
        if method == "OPTIONS", target.elementsEqual("*".utf8) { return true }
        let scheme = target.prefix { $0 != UInt8(ascii: ":") }
        let isLetter = HTTPSyntax.lowercased(first) >= UInt8(ascii: "a") && HTTPSyntax.lowercased(first) <= 0x7A
        return isLetter && scheme.count < target.count && target.dropFirst(scheme.count).starts(with: "://".utf8)
            && target.count > scheme.count + 3
    }

    /// uri-host and port, loosely: no character that could end the authority of a URL.
    private func isHost(_ host: String) -> Bool {
        host.utf8.allSatisfy { byte in
            switch byte {
            case UInt8(ascii: "0")...UInt8(ascii: "9"), UInt8(ascii: "A")...UInt8(ascii: "Z"),
                UInt8(ascii: "a")...UInt8(ascii: "z"):
                true
            default: "-._~!$&'()*+;=:[]%".utf8.contains(byte)
            }
        }
    }
}
