import CSystem
import Glibc

/// The address or interface, and the port, that a connection is made from.
public struct LocalBinding: Sendable {
    /// An IP address in digits, the name of an interface such as "eth0", or "" for any.
    public let host: String
    /// 0: any free one.
    public let port: UInt16

    public init(host: String, port: UInt16) {
        self.host = host
        self.port = port
    }

    /// The address to bind to before connecting to one of this family; nil: there is none of it.
    func address(for family: SocketAddress.Family) -> SocketAddress? {
        if host.isEmpty {
            return SocketAddress(literal: family == .ipv6 ? "::" : "0.0.0.0", port: port)
        }
        if let literal = SocketAddress(literal: host, port: port) { return literal.family == family ? literal : nil }
        var raw = sockaddr_storage()
        var length: socklen_t = 0
        guard !host.utf8.contains(0),
            csystem_interface_address(host, family == .ipv6 ? AF_INET6 : AF_INET, &raw, &length) == 1
        else { return nil }
        var address = SocketAddress(raw, length)
        address.port = port
        return address
    }
}
