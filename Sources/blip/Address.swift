import CBLIP

/// Where to listen or connect, in any of the forms that people type.
///
/// `ws://host:port/path`, `wss://…`, `host:port`, `:port`, `port`, `unix:/path`, `ws+unix://%2Fpath/target`, and for BLIP 1
/// `blip://host:port`, `blips://…`, `blip+unix://%2Fpath`; an IPv6 address stands in brackets.
struct Address {
    enum Place: Equatable {
        case tcp(host: String, port: UInt16)
        case unix(path: String)
    }

    let place: Place
    let isSecure: Bool
    /// BLIP 1, without WebSocket.
    let isBLIP1: Bool
    /// The URL's path, without a query; nil when there is none but "/".
    let path: String?

    static let forms = "write ws://host:port/path, wss://host:port/path, host:port or unix:/path"

    /// A bare port means 127.0.0.1 alone; `:port` means every interface. Port 0 is for listening alone.
    init(parsing text: String, isListening: Bool) throws(Failure) {
        var rest = text[...]
        var secure = false
        var hasScheme = false
        isBLIP1 = ["blip:", "blips:", "blip+", "blips+"].contains { text.lowercased().hasPrefix($0) }
        for (prefix, isSecure) in [
            ("ws://", false), ("wss://", true), ("http://", false), ("https://", true), ("blip://", false),
            ("blips://", true),
        ] where text.lowercased().hasPrefix(prefix) {
            rest = rest.dropFirst(prefix.utf8.count)
            secure = isSecure
            hasScheme = true
        }
        if !hasScheme, let socket = Self.unixSocket(text) {
            guard socket.path.hasPrefix("/") || socket.path.hasPrefix("."), socket.path.utf8.count > 1 else {
                throw Self.failure(text, "a Unix socket's address is unix:/path/of/socket")
            }
            place = .unix(path: socket.path)
            isSecure = text.hasPrefix("wss+") || text.hasPrefix("blips+")
            path = socket.target == "/" ? nil : socket.target
            guard !isBLIP1 || path == nil else { throw Self.failure(text, "BLIP 1 carries no path") }
            return
        }
        if !hasScheme && Self.hasScheme(text) {
            throw Self.failure(text, "there is no such scheme: \(Self.forms)")
        }
        if !hasScheme && (text.hasPrefix("/") || text.hasPrefix("./") || text.hasPrefix("../")) {
            throw Self.failure(text, "for a Unix socket: unix:\(Terminal.escape(text))")
        }
        if rest.contains("@") {
            throw Self.failure(
                text,
                isListening
                    ? "an address to listen on has no user name"
                    : "user:password@ needs a whole URL: it stands behind ws:// or wss://")
        }
        let authority = rest.prefix { $0 != "/" && $0 != "?" }
        let tail = String(rest.dropFirst(authority.count).prefix { $0 != "?" })
        if !hasScheme && !tail.isEmpty {
            throw Self.failure(text, "a path needs a whole URL: ws://host:port/path")
        }
        path = tail.isEmpty || tail == "/" ? nil : tail
        guard !hasScheme || !isBLIP1 || path == nil else { throw Self.failure(text, "BLIP 1 carries no path") }
        isSecure = secure
        let defaultPort: UInt16 = isBLIP1 ? 46353 : secure ? 443 : 80
        place = try Self.hostAndPort(authority, of: text, hasScheme ? defaultPort : nil, isListening)
    }

    /// Whether a text is meant as a URL.
    private static func hasScheme(_ text: String) -> Bool {
        let scheme = text.prefix { $0.isLetter || $0.isNumber || "+-.".contains($0) }
        return !scheme.isEmpty && text.dropFirst(scheme.count).hasPrefix("://")
    }

    /// `unix:` and the path as it is, or a URL whose host is the path, percent-encoded.
    private static func unixSocket(_ text: String) -> (path: String, target: String?)? {
        if text.hasPrefix("unix:") {
            return (String(text.dropFirst("unix:".utf8.count)), nil)
        }
        for prefix in ["ws+unix://", "wss+unix://", "blip+unix://", "blips+unix://"] where text.hasPrefix(prefix) {
            let rest = text.dropFirst(prefix.utf8.count)
            let host = rest.prefix { $0 != "/" && $0 != "?" }
            let target = rest.dropFirst(host.count).prefix { $0 != "?" }
            return (percentDecoded(host), target.isEmpty ? nil : String(target))
        }
        return nil
    }

    /// What is no escape stays as it is.
    private static func percentDecoded(_ text: Substring) -> String {
        var bytes: [UInt8] = []
        var rest = text.utf8[...]
        while let byte = rest.popFirst() {
            if byte == UInt8(ascii: "%"), let value = UInt8(String(rest.prefix(2)) ?? "", radix: 16) {
                bytes.append(value)
                rest = rest.dropFirst(2)
            } else {
                bytes.append(byte)
            }
        }
        return String(decoding: bytes, as: UTF8.self)
    }

    private static func percentEncoded(_ text: String) -> String {
        var result = ""
        for byte in text.utf8 {
            switch byte {
            case UInt8(ascii: "a")...UInt8(ascii: "z"), UInt8(ascii: "A")...UInt8(ascii: "Z"),
                UInt8(ascii: "0")...UInt8(ascii: "9"), UInt8(ascii: "-"), UInt8(ascii: "."), UInt8(ascii: "_"):
                result.unicodeScalars.append(Unicode.Scalar(byte))
            default:
                result += "%" + Terminal.hex(UInt32(byte), digits: 2)
            }
        }
        return result
    }

    private static func hostAndPort(
        _ authority: Substring, of text: String, _ defaultPort: UInt16?, _ isListening: Bool
    ) throws(Failure) -> Place {
        let range = isListening ? "0 to 65535, where 0 is a free one" : "1 to 65535"
        let wrongPort = failure(text, "the port is a number from \(range)")
        if !authority.contains(":") {
            if !authority.isEmpty, authority.allSatisfy({ $0.isASCII && $0.isNumber }) {
                guard let port = UInt16(authority), port > 0 || isListening else { throw wrongPort }
                return .tcp(host: "127.0.0.1", port: port)
            }
            guard let defaultPort, !authority.isEmpty else {
                throw failure(text, "there is no port: write host:port")
            }
            return .tcp(host: String(authority), port: defaultPort)
        }
        var host = authority
        var port = defaultPort
        if let close = authority.lastIndex(of: "]"), authority.hasPrefix("[") {
            host = authority[authority.index(after: authority.startIndex)..<close]
            let tail = authority[authority.index(after: close)...]
            if tail.hasPrefix(":") {
                port = UInt16(tail.dropFirst())
            } else if !tail.isEmpty {
                port = nil
            }
        } else if let colon = authority.lastIndex(of: ":") {
            host = authority[..<colon]
            port = UInt16(authority[authority.index(after: colon)...])
            if host.contains(":") {
                throw failure(text, "an IPv6 address stands in brackets: [::1]:4984")
            }
        }
        guard let port, port > 0 || isListening else { throw wrongPort }
        return .tcp(host: host == "*" ? "" : String(host), port: port)
    }

    private static func failure(_ text: String, _ why: String) -> Failure {
        let shown = Terminal.quote(Credentials.removed(fromMalformed: text))
        return .usage("cannot use the address \(shown): \(why)", status: BLIP_ERROR_URL)
    }

    /// What a client connects to: the text itself if it is a URL, else the URL that it stands for.
    static func clientURL(_ text: String) throws(Failure) -> String {
        if hasScheme(text) {
            try check(url: text)
            return text
        }
        let address = try Address(parsing: text, isListening: false)
        switch address.place {
        case .unix(let path):
            return "ws+unix://\(percentEncoded(path))/"
        case .tcp(let host, let port):
            let name = host.isEmpty ? "127.0.0.1" : host
            return "ws://\(name.contains(":") ? "[\(name)]" : name):\(port)/"
        }
    }

    private static func check(url: String) throws(Failure) {
        var error: OpaquePointer?
        let status = url.withSlice { blip_url_check($0, &error) }
        defer { blip_error_release(error) }
        guard status < 0 else { return }
        let known = [
            "ws://", "wss://", "http://", "https://", "ws+unix://", "wss+unix://", "blip://", "blips://",
            "blip+unix://", "blips+unix://",
        ]
        guard known.contains(where: { url.lowercased().hasPrefix($0) }) else {
            throw failure(url, "there is no such scheme: \(forms)")
        }
        let words = Library.slice { blip_error_message(error, $0) }.map { Terminal.escape($0.string) }
        let why = words ?? Library.message(of: status)
        throw failure(url, why.hasPrefix("the port") ? "the port is a number from 1 to 65535" : "\(why) (\(forms))")
    }
}
