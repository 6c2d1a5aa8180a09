/// A URL with the scheme ws, wss, ws+unix or wss+unix (RFC 6455 §3, RFC 3986); http and https mean ws and wss. With blip,
/// blips, blip+unix or blips+unix instead there is no WebSocket but BLIP 1 on the bare byte stream.
///
/// Of a URL for a Unix socket the host is the socket's path, percent-encoded: `ws+unix://%2Frun%2Fblip.sock/db`.
public struct WebSocketURL: Sendable, Equatable {
    /// What the URL's scheme says, http and https taken as ws and wss.
    public enum Scheme: String, Sendable {
        case ws
        case wss
        case wsUnix = "ws+unix"
        case wssUnix = "wss+unix"
        case blip
        case blips
        case blipUnix = "blip+unix"
        case blipsUnix = "blips+unix"

        var isUnix: Bool { self == .wsUnix || self == .wssUnix || self == .blipUnix || self == .blipsUnix }
        var isSecure: Bool { self == .wss || self == .wssUnix || self == .blips || self == .blipsUnix }
        var isWebSocket: Bool { self == .ws || self == .wss || self == .wsUnix || self == .wssUnix }

        /// The port that a URL without one means.
        var defaultPort: UInt16 { isWebSocket ? (isSecure ? 443 : 80) : WebSocketURL.defaultBLIPPort }
    }

    /// The scheme.
    public let scheme: Scheme
    /// The host in lower case: a name, or an IP address without brackets (an IPv6 zone follows a "%"). "localhost"
    /// for a Unix socket.
    public let host: String
    /// Whether the host is an IP address: no lookup and no server name indication, and a certificate for that address.
    public let isIPLiteral: Bool
    /// The port, from the URL or the scheme: 80, 443, or `defaultBLIPPort`. Without meaning for a Unix socket.
    public let port: UInt16
    /// The path of the Unix socket; nil: a TCP connection.
    public let unixPath: String?
    /// What the request asks for: path and query in visible ASCII, "/" at least.
    public let target: String
    /// The user name in the URL, decoded; nil if there was none. Not in `description`.
    public let user: String?
    /// The password in the URL, decoded; nil if there was none. Not in `description`.
    public let password: String?

    /// The port of blip and blips URLs without one. Nobody has assigned one: it is that of the examples of the first
    /// implementation.
    public static let defaultBLIPPort: UInt16 = 46353
    /// The most bytes of a URL.
    public static let maximumLength = 8192
    /// The most bytes of a Unix socket's path (`sun_path` without its NUL).
    public static let maximumUnixPath = 107

    init(
        scheme: Scheme, host: String, isIPLiteral: Bool, port: UInt16, unixPath: String?, target: String,
        user: String?, password: String?
    ) {
        self.scheme = scheme
        self.host = host
        self.isIPLiteral = isIPLiteral
        self.port = port
        self.unixPath = unixPath
        self.target = target
        self.user = user
        self.password = password
    }

    /// Whether the connection uses TLS.
    public var isSecure: Bool { scheme.isSecure }

    /// Whether a WebSocket carries BLIP; otherwise it is BLIP 1 on the byte stream.
    public var isWebSocket: Bool { scheme.isWebSocket }

    /// The port that the scheme means without one.
    public var defaultPort: UInt16 { scheme.defaultPort }

    /// Host and port as a Host header has them: an IPv6 address in brackets and without its zone, the port only if it
    /// is not the scheme's own.
    public var hostHeader: String {
        var text = host
        if host.utf8.contains(UInt8(ascii: ":")) {
            text = "[" + String(Substring(host.utf8.prefix { $0 != UInt8(ascii: "%") })) + "]"
        }
        return unixPath == nil && port != defaultPort ? "\(text):\(port)" : text
    }

    /// What stands between "//" and the path, without user name and password.
    var authority: String {
        if let unixPath { return WebSocketURLReader.encoded(unixPath) }
        guard let zone = host.utf8.firstIndex(of: UInt8(ascii: "%")) else { return hostHeader }
        let address = host[..<zone]
        let name = host[host.utf8.index(after: zone)...]
        return "[\(address)%25\(name)]" + (port != defaultPort ? ":\(port)" : "")
    }

    /// The URL for a log: without user name and password, and without its query, which may have a token in it
    /// (RFC 6750 §2.3).
    public var logged: String {
        "\(scheme.rawValue)://\(authority)\(path)\(path.utf8.count < target.utf8.count ? "?..." : "")"
    }

    /// The path without query, as it is sent.
    public var path: String { String(Substring(target.utf8.prefix { $0 != UInt8(ascii: "?") })) }

    /// Whether both have the same scheme, host and port, or the same socket (RFC 6454 §4, RFC 9110 §4.3.1).
    public func hasSameOrigin(as other: WebSocketURL) -> Bool {
        scheme == other.scheme && host == other.host && port == other.port && unixPath == other.unixPath
    }

    /// The same URL without user name and password.
    public var withoutCredentials: WebSocketURL {
        WebSocketURL(
            scheme: scheme, host: host, isIPLiteral: isIPLiteral, port: port, unixPath: unixPath, target: target,
            user: nil, password: nil)
    }

    /// Reads a URL.
    ///
    /// The path and query may have characters beyond ASCII: they become percent-encoded UTF-8. Everything else that is
    /// not allowed in a URL is refused, and so is a fragment (RFC 6455 §3).
    public static func parse(_ text: String) -> Result<WebSocketURL, URLFailure> {
        do throws(URLFailure) {
            return .success(try WebSocketURLReader(text).read())
        } catch {
            return .failure(error)
        }
    }
}

extension WebSocketURL: CustomStringConvertible, CustomDebugStringConvertible, CustomReflectable {
    /// The URL without user name and password, in a form that `parse` takes.
    public var description: String { "\(scheme.rawValue)://\(authority)\(isWebSocket ? target : "")" }

    /// `description`, so that no secret gets into a dump.
    public var debugDescription: String { description }

    /// Without children, so that no secret gets into a dump.
    public var customMirror: Mirror { Mirror(self, children: []) }
}
