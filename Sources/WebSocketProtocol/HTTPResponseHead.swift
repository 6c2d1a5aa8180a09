/// The head of an HTTP/1.x response.
public struct HTTPResponseHead: Sendable, Equatable {
    public var status: Int
    /// The reason phrase; may be empty.
    public var reason: String
    /// 0 or 1: HTTP/1.0 or HTTP/1.1.
    public var minorVersion: Int
    public var headers: HTTPHeaders
    /// 1xx but not 101: another head follows.
    public var isInterim: Bool { status / 100 == 1 && status != 101 }
    /// The value of the first header line with that name.
    public subscript(name: String) -> String? { headers[name] }
    /// The values of all header lines with that name.
    public func all(_ name: String) -> [String] { headers.all(name) }
}
