/// Where a proxy is to connect to.
public struct ProxyTarget: Sendable, Equatable {
    /// A name of at most 255 bytes, or an IP address without brackets and zone.
    public let host: String
    public let port: UInt16
    /// The address in network byte order if the host is one: 4 or 16 bytes.
    public let address: [UInt8]?

    public init(host: String, port: UInt16, address: [UInt8]? = nil) {
        self.host = host
        self.port = port
        self.address = address
    }

    /// "host:port", an IPv6 address in brackets (RFC 9110 §7.2).
    public var authority: String {
        host.utf8.contains(UInt8(ascii: ":")) ? "[\(host)]:\(port)" : "\(host):\(port)"
    }

    /// The address of a host that is one, in network byte order; nil for a name.
    public static func address(_ host: String) -> [UInt8]? { IPLiteral.bytes(host) }
}
