/// Reads one URL, front to back; says where and why it stops. No text of it quotes user names or passwords.
struct WebSocketURLReader {
    private let bytes: [UInt8]

    init(_ text: String) {
        bytes = Array(text.utf8)
    }

    func read() throws(URLFailure) -> WebSocketURL {
        guard !bytes.isEmpty else {
            throw URLFailure("the URL is empty: one such as ws://host:port/path is needed", at: 0)
        }
        guard bytes.count <= WebSocketURL.maximumLength else {
            throw URLFailure(
                "the URL has \(bytes.count) bytes; at most \(WebSocketURL.maximumLength) are possible",
                at: WebSocketURL.maximumLength)
        }
        try refuseControls()
        let (scheme, start) = try readScheme()
        if let hash = bytes.firstIndex(of: UInt8(ascii: "#")) {
            throw URLFailure(
                "the URL has a fragment (\"#\" at byte \(hash)), which WebSocket URLs cannot have; write %23 if it is "
                    + "part of a name", at: hash)
        }
        let end = bytes[start...].firstIndex { $0 == UInt8(ascii: "/") || $0 == UInt8(ascii: "?") } ?? bytes.count
        let (user, password, hostStart) = try readUser(start, end)
        let target = try readTarget(end)
        let unixPath = scheme.isUnix ? try readUnixPath(hostStart, end, scheme) : nil
        if !scheme.isWebSocket {
            guard target == "/" else {
                throw URLFailure(
                    "the URL has a path or query, which BLIP 1 cannot carry: leave it out, or use ws or wss", at: end)
            }
            guard user == nil, password == nil else {
                throw URLFailure(
                    "the URL has a user name, which BLIP 1 cannot carry: leave it out, or use ws or wss", at: start)
            }
        }
        if let unixPath {
            return WebSocketURL(
                scheme: scheme, host: "localhost", isIPLiteral: false, port: scheme.defaultPort,
                unixPath: unixPath, target: target, user: user, password: password)
        }
        let (hostEnd, isIPv6) = try findHostEnd(hostStart, end)
        let port = try readPort(hostEnd, end) ?? scheme.defaultPort
        let host = isIPv6 ? try readIPv6(hostStart, hostEnd) : try readName(hostStart, hostEnd)
        return WebSocketURL(
            scheme: scheme, host: host.text, isIPLiteral: host.isLiteral, port: port, unixPath: nil, target: target,
            user: user, password: password)
    }

    /// Control characters could end a line of the request; those of ISO 6429 beyond ASCII could fool a terminal.
    private func refuseControls() throws(URLFailure) {
        for (index, byte) in bytes.enumerated() {
            let isBeyond = byte == 0xC2 && index + 1 < bytes.count && bytes[index + 1] < 0xA0
            if byte < 0x20 || byte == 0x7F || isBeyond {
                throw URLFailure("the URL has a control character at byte \(index)", at: index)
            }
        }
    }

    private func readScheme() throws(URLFailure) -> (WebSocketURL.Scheme, after: Int) {
        guard let colon = bytes.firstIndex(of: UInt8(ascii: ":")), bytes[colon...].starts(with: "://".utf8) else {
            throw URLFailure("the URL has no \"://\": one such as ws://host:port/path is needed", at: 0)
        }
        let name = bytes[..<colon].map { HTTPSyntax.lowercased($0) }
        let scheme: WebSocketURL.Scheme
        switch String(decoding: name, as: UTF8.self) {
        case "ws", "http": scheme = .ws
        case "wss", "https": scheme = .wss
        case "ws+unix": scheme = .wsUnix
        case "wss+unix": scheme = .wssUnix
        case "blip": scheme = .blip
        case "blips": scheme = .blips
        case "blip+unix": scheme = .blipUnix
        case "blips+unix": scheme = .blipsUnix
        case "": throw URLFailure("the URL has no scheme before \"://\"", at: 0)
        default:
            throw URLFailure(
                "the URL's scheme is unknown: ws, wss, ws+unix, wss+unix, and for BLIP 1 blip, blips, blip+unix, "
                    + "blips+unix are possible", at: 0)
        }
        return (scheme, colon + 3)
    }

    private func readUser(_ start: Int, _ end: Int) throws(URLFailure) -> (String?, String?, after: Int) {
        guard let at = bytes[start..<end].firstIndex(of: UInt8(ascii: "@")) else { return (nil, nil, start) }
        if let second = bytes[(at + 1)..<end].firstIndex(of: UInt8(ascii: "@")) {
            throw URLFailure(
                "the URL has two \"@\" before its path; write %40 in a user name or password", at: second)
        }
        let colon = bytes[start..<at].firstIndex(of: UInt8(ascii: ":")) ?? at
        let user = try decodedSecret(start, colon, "user name")
        guard colon < at else { return (user, nil, at + 1) }
        return (user, try decodedSecret(colon + 1, at, "password"), at + 1)
    }

    private func decodedSecret(_ start: Int, _ end: Int, _ what: String) throws(URLFailure) -> String {
        for index in start..<end where !Self.isUnreserved(bytes[index]) && !"!$&'()*+,;=:%".utf8.contains(bytes[index])
        {
            throw URLFailure(
                "the URL's \(what) has a character at byte \(index) that must be percent-encoded", at: index)
        }
        let decoded = try decode(start, end, what)
        if decoded.contains(where: { $0 < 0x20 || $0 == 0x7F }) {
            throw URLFailure("the URL's \(what) has an encoded control character", at: start)
        }
        return try utf8(decoded, start, what)
    }

    /// The end of the host, where the port's colon or the path is.
    private func findHostEnd(_ start: Int, _ end: Int) throws(URLFailure) -> (Int, isIPv6: Bool) {
        guard start < end else {
            throw URLFailure("the URL has no host", at: start)
        }
        if bytes[start] == UInt8(ascii: "[") {
            guard let close = bytes[start..<end].firstIndex(of: UInt8(ascii: "]")) else {
                throw URLFailure("the IPv6 address at byte \(start) has no \"]\"", at: start)
            }
            guard close + 1 == end || bytes[close + 1] == UInt8(ascii: ":") else {
                throw URLFailure("only a port may follow the \"]\" of the IPv6 address", at: close + 1)
            }
            return (close + 1, true)
        }
        let colon = bytes[start..<end].firstIndex(of: UInt8(ascii: ":")) ?? end
        if colon < end, bytes[(colon + 1)..<end].contains(UInt8(ascii: ":")) {
            if IPLiteral.isIPv6(bytes[start..<end]) {
                throw URLFailure("IPv6 addresses are written in brackets, as in ws://[::1]:80/", at: start)
            }
            throw URLFailure("the host has more than one \":\" (IPv6 addresses are written in brackets)", at: colon)
        }
        guard start < colon else { throw URLFailure("the URL has no host before its port", at: start) }
        return (colon, false)
    }

    private func readPort(_ colon: Int, _ end: Int) throws(URLFailure) -> UInt16? {
        guard colon < end else { return nil }
        let digits = bytes[(colon + 1)..<end]
        guard !digits.isEmpty else { throw URLFailure("the port after \":\" is missing", at: colon) }
        guard digits.count <= 5, digits.allSatisfy({ HTTPSyntax.isDigit($0) }),
            let port = UInt16(exactly: digits.reduce(0) { $0 * 10 + Int($1 & 0x0F) }), port > 0
        else { throw URLFailure("the port at byte \(colon + 1) is not a number of 1 to 65535", at: colon + 1) }
        return port
    }

    private func readIPv6(_ start: Int, _ end: Int) throws(URLFailure) -> (text: String, isLiteral: Bool) {
        let inner = bytes[(start + 1)..<(end - 1)]
        let percent = inner.firstIndex(of: UInt8(ascii: "%")) ?? inner.endIndex
        guard IPLiteral.isIPv6(inner[..<percent]) else {
            throw URLFailure("what is in brackets at byte \(start) is not an IPv6 address", at: start)
        }
        let address = String(decoding: inner[..<percent].map { HTTPSyntax.lowercased($0) }, as: UTF8.self)
        guard percent < inner.endIndex else { return (address, true) }
        // RFC 6874: the "%" before a zone is itself encoded.
        let zone = inner[percent...].dropFirst(3)
        guard inner[percent...].starts(with: "%25".utf8), !zone.isEmpty, zone.allSatisfy({ Self.isUnreserved($0) })
        else {
            throw URLFailure("the zone of the IPv6 address must be written as in [fe80::1%25eth0]", at: percent)
        }
        return (address + "%" + String(decoding: zone, as: UTF8.self), true)
    }

    private func readName(_ start: Int, _ end: Int) throws(URLFailure) -> (text: String, isLiteral: Bool) {
        for index in start..<end {
            let byte = bytes[index]
            if byte >= 0x80 {
                throw URLFailure(
                    "the host has a character beyond ASCII at byte \(index): write it in its xn-- form", at: index)
            }
            guard isNameByte(byte) else {
                throw URLFailure(
                    "the host has a character at byte \(index) that host names cannot have", at: index)
            }
        }
        let name = bytes[start..<end].map { HTTPSyntax.lowercased($0) }
        var labels = name.split(separator: UInt8(ascii: "."), omittingEmptySubsequences: false)
        if labels.count > 1, labels.last?.isEmpty == true { labels.removeLast() }
        guard name.count <= 254, labels.allSatisfy({ (1...63).contains($0.count) }) else {
            throw URLFailure(
                "the host has an empty part, one of more than 63 bytes, or more than 253 bytes in all", at: start)
        }
        let text = String(decoding: name, as: UTF8.self)
        if IPLiteral.isIPv4(name) { return (text, true) }
        // Resolvers take such names for addresses in old forms (octal, fewer than four numbers).
        if let last = labels.last, last.allSatisfy({ HTTPSyntax.isDigit($0) }) || last.starts(with: "0x".utf8) {
            throw URLFailure("the host at byte \(start) looks like an IPv4 address but is none", at: start)
        }
        return (text, false)
    }

    private func isNameByte(_ byte: UInt8) -> Bool {
        switch byte {
        case UInt8(ascii: "0")...UInt8(ascii: "9"), UInt8(ascii: "A")...UInt8(ascii: "Z"),
            UInt8(ascii: "a")...UInt8(ascii: "z"), UInt8(ascii: "-"), UInt8(ascii: "."), UInt8(ascii: "_"):
            true
        default: false
        }
    }

    private func readUnixPath(
        _ start: Int, _ end: Int, _ scheme: WebSocketURL.Scheme
    ) throws(URLFailure) -> String {
        let example = "\(scheme.rawValue)://%2Frun%2Fblip.sock" + (scheme.isWebSocket ? "/path" : "")
        guard start < end else {
            throw URLFailure(
                "the path of the Unix socket is missing: its slashes are written %2F, as in \(example)", at: start)
        }
        for index in start..<end where !Self.isUnreserved(bytes[index]) && !"!$&'()*+,;=%".utf8.contains(bytes[index]) {
            throw URLFailure(
                bytes[index] == UInt8(ascii: ":")
                    ? "a Unix socket has no port (write %3A for a colon in its path)"
                    : "the path of the Unix socket has a character at byte \(index) that must be percent-encoded, as "
                        + "in " + example, at: index)
        }
        let path = try decode(start, end, "socket path")
        guard !path.contains(0) else { throw URLFailure("the path of the Unix socket has a NUL", at: start) }
        guard path.count <= WebSocketURL.maximumUnixPath else {
            throw URLFailure(
                "the path of the Unix socket has \(path.count) bytes; at most \(WebSocketURL.maximumUnixPath) are "
                    + "possible", at: start)
        }
        return try utf8(path, start, "socket path")
    }

    private func readTarget(_ start: Int) throws(URLFailure) -> String {
        var output: [UInt8] = []
        output.reserveCapacity(bytes.count - start + 1)
        if start == bytes.count || bytes[start] != UInt8(ascii: "/") { output.append(UInt8(ascii: "/")) }
        var index = start
        while index < bytes.count {
            let byte = bytes[index]
            if byte >= 0x80 {
                Self.appendEncoded(byte, to: &output)
            } else if byte == UInt8(ascii: "%") {
                guard index + 2 < bytes.count, IPLiteral.isHexDigit(bytes[index + 1]),
                    IPLiteral.isHexDigit(bytes[index + 2])
                else {
                    throw URLFailure("the \"%\" at byte \(index) is not followed by two hexadecimal digits", at: index)
                }
                output.append(byte)
            } else if Self.isUnreserved(byte) || "!$&'()*+,;=:@/?".utf8.contains(byte) {
                output.append(byte)
            } else {
                var hex: [UInt8] = []
                Self.appendEncoded(byte, to: &hex)
                throw URLFailure(
                    "the path or query has a character at byte \(index) that must be written "
                        + String(decoding: hex, as: UTF8.self), at: index)
            }
            index += 1
        }
        return String(decoding: output, as: UTF8.self)
    }

    private func decode(_ start: Int, _ end: Int, _ what: String) throws(URLFailure) -> [UInt8] {
        var output: [UInt8] = []
        var index = start
        while index < end {
            guard bytes[index] == UInt8(ascii: "%") else {
                output.append(bytes[index])
                index += 1
                continue
            }
            guard index + 2 < end, let high = IPLiteral.hexValue(bytes[index + 1]),
                let low = IPLiteral.hexValue(bytes[index + 2])
            else {
                throw URLFailure(
                    "the \"%\" at byte \(index) of the URL's \(what) is not followed by two hexadecimal digits",
                    at: index)
            }
            output.append(high << 4 | low)
            index += 3
        }
        return output
    }

    private func utf8(_ decoded: [UInt8], _ start: Int, _ what: String) throws(URLFailure) -> String {
        guard decoded.withUnsafeBytes({ UTF8Validator.isValid($0) }) else {
            throw URLFailure("the URL's \(what) is not UTF-8 when decoded", at: start)
        }
        return String(decoding: decoded, as: UTF8.self)
    }

    /// A text with everything percent-encoded that has a meaning in URLs.
    static func encoded(_ text: String) -> String {
        var output: [UInt8] = []
        for byte in text.utf8 {
            if isUnreserved(byte) { output.append(byte) } else { appendEncoded(byte, to: &output) }
        }
        return String(decoding: output, as: UTF8.self)
    }

    private static func appendEncoded(_ byte: UInt8, to output: inout [UInt8]) {
        let digits = Array("0123456789ABCDEF".utf8)
        output += [UInt8(ascii: "%"), digits[Int(byte >> 4)], digits[Int(byte & 0x0F)]]
    }

    /// unreserved of RFC 3986 §2.3.
    private static func isUnreserved(_ byte: UInt8) -> Bool {
        switch byte {
        case UInt8(ascii: "0")...UInt8(ascii: "9"), UInt8(ascii: "A")...UInt8(ascii: "Z"),
            UInt8(ascii: "a")...UInt8(ascii: "z"), UInt8(ascii: "-"), UInt8(ascii: "."), UInt8(ascii: "_"),
            UInt8(ascii: "~"):
            true
        default: false
        }
    }
}
