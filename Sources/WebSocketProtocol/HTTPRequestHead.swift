/// The head of an HTTP/1.x request.
public struct HTTPRequestHead: Sendable, Equatable {
    public var method: String
    /// As it was sent.
    public var target: String
    /// 0 or 1: HTTP/1.0 or HTTP/1.1.
    public var minorVersion: Int
    public var headers: HTTPHeaders
    /// Path and query.
    public var pathAndQuery: String { target }
    /// Path without query.
    public var path: String { target }
    /// The value of the first header line with that name.
    public subscript(name: String) -> String? { headers[name] }
    /// The values of all header lines with that name.
    public func all(_ name: String) -> [String] { headers.all(name) }
}
