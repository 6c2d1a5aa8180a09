/// Which of the two families of IP addresses a connection uses.
public enum AddressPolicy: Sendable {
    /// Both, in the system's order.
    case any
    /// Both, IPv4 first.
    case preferIPv4
    /// Both, IPv6 first.
    case preferIPv6
    case onlyIPv4
    case onlyIPv6

    /// The addresses that are to be tried, the preferred family's first.
    public func ordered(_ addresses: [SocketAddress]) -> [SocketAddress] {
        switch self {
        case .any: addresses
        case .onlyIPv4: addresses.filter { $0.family == .ipv4 }
        case .onlyIPv6: addresses.filter { $0.family == .ipv6 }
        case .preferIPv4: addresses.filter { $0.family == .ipv4 } + addresses.filter { $0.family != .ipv4 }
        case .preferIPv6: addresses.filter { $0.family == .ipv6 } + addresses.filter { $0.family != .ipv6 }
        }
    }

    /// What is missing if no address is left.
    var words: String {
        switch self {
        case .onlyIPv4: "no IPv4 address"
        case .onlyIPv6: "no IPv6 address"
        default: "no address"
        }
    }
}
