/// One cookie of a jar (RFC 6265 §5.3).
struct Cookie: Sendable {
    var name: String
    var value: SecretBytes
    /// Whose it is: a host in lower case, or for a Unix socket its path, percent-encoded.
    var domain: String
    /// Only for the host itself, not for hosts below it.
    var isHostOnly: Bool
    var path: String
    /// Only over TLS.
    var isSecure: Bool
    /// Not for scripts; kept because the program may want to know.
    var isHTTPOnly: Bool
    /// Seconds of the wall clock; nil: as long as the jar.
    var expiry: Int64?
    /// Counts up with each cookie that is made, and with each use.
    var creation: UInt64
    var lastUse: UInt64

    func hasExpired(at now: Int64) -> Bool { expiry.map { $0 <= now } ?? false }

    func matches(_ url: WebSocketURL, isHome host: String) -> Bool {
        guard !isSecure || url.isSecure else { return false }
        guard host == domain || (!isHostOnly && !url.isIPLiteral && host.hasSuffix("." + domain)) else { return false }
        return Self.path(path, covers: url.path)
    }

    /// RFC 6265 §5.1.4.
    static func path(_ cookie: String, covers request: String) -> Bool {
        let cookie = cookie.utf8
        let request = request.utf8
        guard request.starts(with: cookie) else { return false }
        return request.count == cookie.count || cookie.last == UInt8(ascii: "/")
            || request.dropFirst(cookie.count).first == UInt8(ascii: "/")
    }
}
