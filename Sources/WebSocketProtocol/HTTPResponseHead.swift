/// The head of an HTTP/1.x response (RFC 9112 §4).
public struct HTTPResponseHead: Sendable, Equatable {
    /// 100 to 999.
    public var status: Int
    /// The reason phrase; may be empty.
    public var reason: String
    /// 0 or 1: HTTP/1.0 or HTTP/1.1.
    public var minorVersion: Int
    /// The header lines.
    public var headers: HTTPHeaders

    /// Makes a head; nothing is checked.
    public init(status: Int, reason: String, minorVersion: Int = 1, headers: HTTPHeaders) {
        self.status = status
        self.reason = reason
        self.minorVersion = minorVersion
        self.headers = headers
    }

    /// 1xx but not 101: it answers nothing, another head follows (RFC 9110 §15.2).
    public var isInterim: Bool { status >= 100 && status <= 199 && status != 101 }

    /// The value of the first header line with that name, whatever its case.
    public subscript(name: String) -> String? { headers[name] }

    /// The values of all header lines with that name, whatever its case.
    public func all(_ name: String) -> [String] { headers.all(name) }
}
