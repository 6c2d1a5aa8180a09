import CSystem
import Glibc

/// Where a socket is: an IPv4 or IPv6 address with a port, or a path of the file system.
///
/// Described as people write it: "127.0.0.1:80", "[::1]:80", "unix:/path".
public struct SocketAddress: Sendable, Hashable, CustomStringConvertible {
    public enum Family: Sendable { case ipv4, ipv6, unix, unspecified }

    private enum Storage: Hashable, Sendable {
        case unspecified
        /// The address in network byte order.
        case ipv4(UInt32, port: UInt16)
        case ipv6(UInt64, UInt64, scope: UInt32, port: UInt16)
        case unix(String)
    }

    private var storage: Storage

    private init(_ storage: Storage) {
        self.storage = storage
    }

    /// No address: of a socket that has none, or is not connected any more.
    public static let unspecified = SocketAddress(.unspecified)

    /// A Unix-domain socket. The path is checked when it is used.
    public init(unixPath: String) {
        self.init(.unix(unixPath))
    }

    /// An IP address in digits, IPv6 without brackets and with an optional "%interface"; nil if it is something else.
    public init?(literal: String, port: UInt16) {
        var ipv4 = in_addr()
        if inet_pton(AF_INET, literal, &ipv4) == 1 {
            self.init(.ipv4(ipv4.s_addr, port: port))
            return
        }
        var digits = literal
        var scope: UInt32 = 0
        if let percent = literal.utf8.firstIndex(of: UInt8(ascii: "%")) {
            digits = String(literal[..<percent])
            let zone = String(literal[literal.utf8.index(after: percent)...])
            scope = UInt32(zone) ?? if_nametoindex(zone)
            if scope == 0 { return nil }
        }
        var ipv6 = in6_addr()
        guard inet_pton(AF_INET6, digits, &ipv6) == 1 else { return nil }
        let halves = withUnsafeBytes(of: &ipv6) {
            ($0.loadUnaligned(as: UInt64.self), $0.loadUnaligned(fromByteOffset: 8, as: UInt64.self))
        }
        self.init(.ipv6(halves.0, halves.1, scope: scope, port: port))
    }

    init(_ raw: sockaddr_storage, _ length: socklen_t) {
        let length = min(Int(length), MemoryLayout<sockaddr_storage>.size)
        storage = withUnsafeBytes(of: raw) { bytes in
            guard length >= 2 else { return .unspecified }
            switch Int32(raw.ss_family) {
            case AF_INET where length >= MemoryLayout<sockaddr_in>.size:
                let address = bytes.loadUnaligned(as: sockaddr_in.self)
                return .ipv4(address.sin_addr.s_addr, port: UInt16(bigEndian: address.sin_port))
            case AF_INET6 where length >= MemoryLayout<sockaddr_in6>.size:
                let address = bytes.loadUnaligned(as: sockaddr_in6.self)
                // sockaddr_in6: family 2, port 2, flow 4, address 16, scope 4.
                let high = bytes.loadUnaligned(fromByteOffset: 8, as: UInt64.self)
                let low = bytes.loadUnaligned(fromByteOffset: 16, as: UInt64.self)
                let port = UInt16(bigEndian: address.sin6_port)
                if high == 0, UInt64(bigEndian: low) >> 32 == 0xffff {
                    // IPv4 on a socket of both families (RFC 4291 §2.5.5.2).
                    return .ipv4(UInt32(truncatingIfNeeded: UInt64(bigEndian: low)).bigEndian, port: port)
                }
                return .ipv6(high, low, scope: address.sin6_scope_id, port: port)
            case AF_UNIX:
                let path = bytes[2..<length].prefix { $0 != 0 }
                return .unix(String(decoding: path, as: UTF8.self))
            default:
                return .unspecified
            }
        }
    }

    /// The address of this side of a socket.
    static func local(of descriptor: Int32) -> SocketAddress {
        var raw = sockaddr_storage()
        var length: socklen_t = 0
        guard csystem_local_address(descriptor, &raw, &length) >= 0 else { return .unspecified }
        return SocketAddress(raw, length)
    }

    /// The address of the other side of a socket.
    static func remote(of descriptor: Int32) -> SocketAddress {
        var raw = sockaddr_storage()
        var length: socklen_t = 0
        guard csystem_remote_address(descriptor, &raw, &length) >= 0 else { return .unspecified }
        return SocketAddress(raw, length)
    }

    public var family: Family {
        switch storage {
        case .unspecified: .unspecified
        case .ipv4: .ipv4
        case .ipv6: .ipv6
        case .unix: .unix
        }
    }

    /// The port; 0 for what has none.
    public var port: UInt16 {
        get {
            switch storage {
            case .ipv4(_, let port), .ipv6(_, _, _, let port): port
            case .unix, .unspecified: 0
            }
        }
        set {
            switch storage {
            case .ipv4(let address, _): storage = .ipv4(address, port: newValue)
            case .ipv6(let high, let low, let scope, _): storage = .ipv6(high, low, scope: scope, port: newValue)
            case .unix, .unspecified: break
            }
        }
    }

    /// The path of a Unix-domain socket; empty if the socket has no name.
    public var path: String? {
        if case .unix(let path) = storage { path } else { nil }
    }

    /// Whether the other end can only be on this machine.
    public var isLoopback: Bool {
        switch storage {
        case .ipv4(let address, _):
            return UInt32(bigEndian: address) >> 24 == 127
        case .ipv6(let high, let low, _, _):
            let low = UInt64(bigEndian: low)
            return high == 0 && (low == 1 || low >> 24 == 0xffff_7f)
        case .unix: return true
        case .unspecified: return false
        }
    }

    /// The address without its port: "127.0.0.1", "::1", "/path".
    public var host: String {
        switch storage {
        case .unspecified: return ""
        case .unix(let path): return path
        case .ipv4(let address, _):
            var raw = in_addr(s_addr: address)
            return Self.text(AF_INET, &raw, Int(INET_ADDRSTRLEN))
        case .ipv6(let high, let low, let scope, _):
            var raw = (high, low)
            let text = Self.text(AF_INET6, &raw, Int(INET6_ADDRSTRLEN))
            return scope == 0 ? text : "\(text)%\(scope)"
        }
    }

    public var description: String {
        switch storage {
        case .unspecified: "unknown address"
        case .unix(let path): "unix:\(path)"
        case .ipv4(_, let port): "\(host):\(port)"
        case .ipv6(_, _, _, let port): "[\(host)]:\(port)"
        }
    }

    private static func text(_ family: Int32, _ raw: UnsafeRawPointer, _ capacity: Int) -> String {
        withUnsafeTemporaryAllocation(of: CChar.self, capacity: capacity) { buffer in
            guard let base = buffer.baseAddress, inet_ntop(family, raw, base, socklen_t(capacity)) != nil else {
                return ""
            }
            return String(cString: base)
        }
    }

    /// The address as the system has it: the bytes of a `struct sockaddr` of its family.
    public var systemBytes: [UInt8] {
        var bytes = [UInt8]()
        _ = withStorage { storage, length in
            bytes = Array(
                UnsafeRawBufferPointer(start: storage, count: min(Int(length), MemoryLayout<sockaddr_storage>.size)))
            return 0
        }
        return bytes
    }

    var systemFamily: Int32 {
        switch storage {
        case .ipv4: AF_INET
        case .ipv6: AF_INET6
        case .unix: AF_UNIX
        case .unspecified: AF_UNSPEC
        }
    }

    /// Calls `body` with the address as the system has it; a path that cannot be an address gives a negated errno.
    func withStorage(_ body: (UnsafePointer<sockaddr_storage>, socklen_t) -> Int32) -> Int32 {
        var raw = sockaddr_storage()
        var length = socklen_t(0)
        switch storage {
        case .unspecified:
            return -EAFNOSUPPORT
        case .ipv4(let address, let port):
            let value = sockaddr_in(
                sin_family: sa_family_t(AF_INET), sin_port: port.bigEndian, sin_addr: in_addr(s_addr: address),
                sin_zero: (0, 0, 0, 0, 0, 0, 0, 0))
            length = socklen_t(MemoryLayout<sockaddr_in>.size)
            withUnsafeMutableBytes(of: &raw) { $0.storeBytes(of: value, as: sockaddr_in.self) }
        case .ipv6(let high, let low, let scope, let port):
            length = socklen_t(MemoryLayout<sockaddr_in6>.size)
            withUnsafeMutableBytes(of: &raw) { bytes in
                bytes.storeBytes(of: sa_family_t(AF_INET6), as: sa_family_t.self)
                bytes.storeBytes(of: port.bigEndian, toByteOffset: 2, as: UInt16.self)
                bytes.storeBytes(of: high, toByteOffset: 8, as: UInt64.self)
                bytes.storeBytes(of: low, toByteOffset: 16, as: UInt64.self)
                bytes.storeBytes(of: scope, toByteOffset: 24, as: UInt32.self)
            }
        case .unix(let path):
            let result = path.utf8.withContiguousStorageIfAvailable { bytes in
                bytes.withMemoryRebound(to: CChar.self) {
                    csystem_unix_address(&raw, &length, $0.baseAddress, $0.count)
                }
            }
            let code = result ?? csystem_unix_address(&raw, &length, path, path.utf8.count)
            if code < 0 { return code }
        }
        return withUnsafePointer(to: raw) { body($0, length) }
    }
}
