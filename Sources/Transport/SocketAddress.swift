public struct SocketAddress: Sendable, Hashable, CustomStringConvertible {
    public enum Family: Sendable { case ipv4, ipv6, unix, unspecified }
    public var family: Family { .unspecified }
    public var port: UInt16 { 0 }
    public var path: String? { nil }
    public var isLoopback: Bool { false }
    public init?(literal: String, port: UInt16) { return nil }
    public init(unixPath: String) {}
    public var description: String { "" }
}
