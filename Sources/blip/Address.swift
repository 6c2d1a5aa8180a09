import CBLIP

/// Where to listen or connect, in any of the forms that people type.
///
/// `ws://host:port/path`, `wss://…`, `host:port`, `:port`, `port`, `unix:/path`; an IPv6 address stands in brackets.
struct Address {
    enum Place: Equatable {
        case tcp(host: String, port: UInt16)
        case unix(path: String)
    }

    let place: Place
    let isSecure: Bool
    /// The URL's path and query; nil when there is none but "/".
    let target: String?

    /// A bare port means 127.0.0.1 alone; `:port` means every interface.
    init(parsing text: String) throws(Failure) {
        var rest = text[...]
        var secure = false
        var hasScheme = false
        for (prefix, isSecure) in [("ws://", false), ("wss://", true), ("http://", false), ("https://", true)]
        where text.lowercased().hasPrefix(prefix) {
            rest = rest.dropFirst(prefix.utf8.count)
            secure = isSecure
            hasScheme = true
        }
        if !hasScheme, let path = Self.unixPath(text) {
            guard path.hasPrefix("/") || path.hasPrefix("."), path.utf8.count > 1 else {
                throw Self.failure(text, "a Unix socket's address is unix:/path/of/socket")
            }
            place = .unix(path: path)
            isSecure = text.hasPrefix("wss+")
            target = nil
            return
        }
        if rest.contains("@") {
            throw Self.failure(text, "an address to listen on has no user name")
        }
        let authority = rest.prefix { $0 != "/" && $0 != "?" }
        let tail = String(rest.dropFirst(authority.count))
        if !hasScheme && !tail.isEmpty {
            throw Self.failure(text, "a path needs a whole URL: ws://host:port/path")
        }
        target = tail.isEmpty || tail == "/" ? nil : tail
        isSecure = secure
        place = try Self.hostAndPort(authority, of: text, defaultPort: hasScheme ? (secure ? 443 : 80) : nil)
    }

    private static func unixPath(_ text: String) -> String? {
        for prefix in ["unix:", "ws+unix:", "wss+unix:"] where text.hasPrefix(prefix) {
            let path = text.dropFirst(prefix.utf8.count)
            return String(path.hasPrefix("//") ? path.dropFirst(2) : path)
        }
        return nil
    }

    private static func hostAndPort(
        _ authority: Substring, of text: String, defaultPort: UInt16?
    ) throws(Failure) -> Place {
        if !authority.contains(":") {
            if let port = UInt16(authority) {
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
        guard let port else {
            throw failure(text, "the port is a number from 0 to 65535")
        }
        return .tcp(host: host == "*" ? "" : String(host), port: port)
    }

    private static func failure(_ text: String, _ why: String) -> Failure {
        .usage("cannot use the address \(Terminal.quote(text)): \(why)", status: BLIP_ERROR_URL)
    }

    /// What a client connects to: the text itself if it is a URL, else the URL that it stands for.
    static func clientURL(_ text: String) throws(Failure) -> String {
        if text.contains("://") || text.hasPrefix("ws+unix:") || text.hasPrefix("wss+unix:") { return text }
        let address = try Address(parsing: text)
        switch address.place {
        case .unix(let path):
            return "ws+unix://\(path)"
        case .tcp(let host, let port):
            let name = host.isEmpty ? "127.0.0.1" : host
            return "ws://\(name.contains(":") ? "[\(name)]" : name):\(port)/"
        }
    }
}
