/// Where a proxy is and how to talk to it: http, https, socks5 or socks5h, a host, a port, and who we are.
public struct ProxyURL: Sendable, Equatable {
    public enum Kind: String, Sendable {
        /// HTTP CONNECT (RFC 9110 §9.3.6).
        case http
        /// HTTP CONNECT over TLS to the proxy.
        case https
        /// SOCKS 5 (RFC 1928); names are looked up here.
        case socks5
        /// SOCKS 5; names are looked up by the proxy.
        case socks5h

        /// The port that a URL without one means: what curl takes.
        var defaultPort: UInt16 { self == .https ? 443 : 1080 }
    }

    public let kind: Kind
    /// A name or an IP address without brackets.
    public let host: String
    public let port: UInt16
    /// Decoded; nil if there was none. Not in `description`.
    public let user: String?
    /// Likewise.
    public let password: String?

    /// Who we are to the proxy; nil without a user name.
    public var credentials: HTTPCredentials? {
        user.map { .password(user: $0, SecretBytes(Array((password ?? "").utf8))) }
    }

    /// Reads a proxy's URL; one without a scheme is for http, as in the environment variables.
    public static func parse(_ text: String) -> Result<ProxyURL, URLFailure> {
        do throws(URLFailure) {
            return .success(try read(text))
        } catch {
            return .failure(error)
        }
    }

    private static func read(_ text: String) throws(URLFailure) -> ProxyURL {
        var kind = Kind.http
        var rest = Substring(text)
        if let colon = text.utf8.firstIndex(of: UInt8(ascii: ":")), text.utf8[colon...].starts(with: "://".utf8) {
            let scheme = String(decoding: text.utf8[..<colon].map { HTTPSyntax.lowercased($0) }, as: UTF8.self)
            guard let known = Kind(rawValue: scheme == "socks" ? "socks5h" : scheme) else {
                throw URLFailure(
                    "the proxy's scheme is unknown: http, https, socks5 and socks5h are possible", at: 0)
            }
            kind = known
            rest = text[text.utf8.index(colon, offsetBy: 3)...]
        }
        // Read as two URLs whose default ports differ: the same port twice was given.
        let plain = try authority("ws://", rest)
        let secure = try authority("wss://", rest)
        guard plain.target == "/" else { throw URLFailure("a proxy's URL has no path", at: text.utf8.count) }
        if kind == .socks5 || kind == .socks5h {
            for secret in [plain.user, plain.password] where (secret?.utf8.count ?? 0) > 255 {
                throw URLFailure("a SOCKS proxy takes at most 255 bytes of user name and of password", at: 0)
            }
        } else if plain.user?.utf8.contains(UInt8(ascii: ":")) == true {
            throw URLFailure("a user name with a colon cannot be sent to an HTTP proxy (RFC 7617)", at: 0)
        }
        return ProxyURL(
            kind: kind, host: plain.host, port: plain.port == secure.port ? plain.port : kind.defaultPort,
            user: plain.user, password: plain.password)
    }

    private static func authority(_ scheme: String, _ rest: Substring) throws(URLFailure) -> WebSocketURL {
        try WebSocketURL.parse(scheme + rest).get()
    }
}

extension ProxyURL: CustomStringConvertible, CustomDebugStringConvertible, CustomReflectable {
    /// "http://host:port", without user name and password.
    public var description: String {
        let isIPv6 = host.utf8.contains(UInt8(ascii: ":"))
        return "\(kind.rawValue)://\(isIPv6 ? "[\(host)]" : host):\(port)"
    }

    /// `description`, so that no secret gets into a dump.
    public var debugDescription: String { description }

    /// Without children, so that no secret gets into a dump.
    public var customMirror: Mirror { Mirror(self, children: []) }
}
