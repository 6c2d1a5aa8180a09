/// The head of an HTTP/1.x request (RFC 9112 §3).
public struct HTTPRequestHead: Sendable, Equatable {
    /// The method, a token; case matters.
    public var method: String
    /// The request target as it was sent: visible ASCII.
    public var target: String
    /// 0 or 1: HTTP/1.0 or HTTP/1.1.
    public var minorVersion: Int
    /// The header lines.
    public var headers: HTTPHeaders

    /// Makes a head; nothing is checked.
    public init(method: String, target: String, minorVersion: Int = 1, headers: HTTPHeaders) {
        self.method = method
        self.target = target
        self.minorVersion = minorVersion
        self.headers = headers
    }

    /// Path and query: the target, or what follows the authority of an absolute one (RFC 9112 §3.2.2).
    public var pathAndQuery: String {
        guard target.utf8.first != UInt8(ascii: "/") else { return target }
        var rest = Substring(target).utf8
        guard let colon = rest.firstIndex(of: UInt8(ascii: ":")), rest[colon...].starts(with: "://".utf8) else {
            return target
        }
        rest = rest[colon...].dropFirst(3)
        guard let start = rest.firstIndex(where: { $0 == UInt8(ascii: "/") || $0 == UInt8(ascii: "?") }) else {
            return "/"
        }
        let tail = String(Substring(rest[start...]))
        return rest[start] == UInt8(ascii: "?") ? "/" + tail : tail
    }

    /// Path without query, as it was sent: nothing is decoded.
    public var path: String {
        let whole = pathAndQuery
        return String(Substring(whole.utf8.prefix { $0 != UInt8(ascii: "?") }))
    }

    /// The value of the first header line with that name, whatever its case.
    public subscript(name: String) -> String? { headers[name] }

    /// The values of all header lines with that name, whatever its case.
    public func all(_ name: String) -> [String] { headers.all(name) }

    /// Whether a body follows the head (RFC 9112 §6.3).
    public var hasBody: Bool {
        if headers["Transfer-Encoding"] != nil { return true }
        return headers.all("Content-Length").contains { HTTPSyntax.number($0) != 0 }
    }
}
