/// The client's side of SOCKS 5 (RFC 1928) with user name and password (RFC 1929): bytes in, bytes out.
public struct SOCKSHandshake: Sendable {
    private enum Stage: Sendable {
        case method
        case password
        case reply
    }

    private let target: ProxyTarget
    private let user: [UInt8]
    private let password: [UInt8]
    private let hasCredentials: Bool
    private var stage = Stage.method

    /// `user` and `password`: at most 255 bytes each; nil: none is offered.
    public init(target: ProxyTarget, user: String?, password: String?) {
        self.target = target
        hasCredentials = user != nil
        self.user = Array((user ?? "").utf8.prefix(255))
        self.password = Array((password ?? "").utf8.prefix(255))
    }

    /// What is sent first: the methods of authentication that we have.
    public var greeting: [UInt8] { hasCredentials ? [5, 2, 0, 2] : [5, 1, 0] }

    /// Looks at what came. Bytes that were not taken are to be given again, with more behind them.
    public mutating func receive(_ bytes: UnsafeRawBufferPointer) -> ProxyStep {
        switch stage {
        case .method: receiveMethod(bytes)
        case .password: receiveVerdict(bytes)
        case .reply: receiveReply(bytes)
        }
    }

    private mutating func receiveMethod(_ bytes: UnsafeRawBufferPointer) -> ProxyStep {
        guard let version = bytes.first else { return .more(consumed: 0) }
        guard version == 5 else {
            let looks = version == UInt8(ascii: "H") ? "it looks like HTTP; use an http proxy URL" : "byte \(version)"
            return .failed(ProxyFailure(.other, 0, "it does not speak SOCKS 5: \(looks)"))
        }
        guard bytes.count >= 2 else { return .more(consumed: 0) }
        switch bytes[1] {
        case 0:
            stage = .reply
            return .send(request, consumed: 2)
        case 2 where hasCredentials:
            stage = .password
            // RFC 1929 §2; the sizes were limited above.
            let text = [1, UInt8(truncatingIfNeeded: user.count)] + user
            return .send(text + [UInt8(truncatingIfNeeded: password.count)] + password, consumed: 2)
        case 0xFF:
            let why =
                hasCredentials
                ? "it takes neither user name and password nor none"
                : "it wants authentication; put user name and password into the proxy's URL"
            return .failed(ProxyFailure(.socks, 0xFF, why))
        default:
            return .failed(ProxyFailure(.other, 0, "it chose method \(bytes[1]), which was not offered"))
        }
    }

    private mutating func receiveVerdict(_ bytes: UnsafeRawBufferPointer) -> ProxyStep {
        guard bytes.count >= 2 else { return .more(consumed: 0) }
        // Some proxies answer with the version of SOCKS.
        guard bytes[0] == 1 || bytes[0] == 5 else {
            return .failed(ProxyFailure(.other, 0, "its answer to user name and password is malformed"))
        }
        guard bytes[1] == 0 else {
            return .failed(ProxyFailure(.socks, Int(bytes[1]), "it does not take the user name and password"))
        }
        stage = .reply
        return .send(request, consumed: 2)
    }

    /// RFC 1928 §4: CONNECT to an address or a name.
    private var request: [UInt8] {
        var bytes: [UInt8] = [5, 1, 0]
        if let address = target.address, address.count == 4 || address.count == 16 {
            bytes.append(address.count == 4 ? 1 : 4)
            bytes += address
        } else {
            let name = target.host.utf8.prefix(255)
            bytes.append(3)
            bytes.append(UInt8(truncatingIfNeeded: name.count))
            bytes += name
        }
        return bytes + [UInt8(target.port >> 8), UInt8(target.port & 0xFF)]
    }

    /// RFC 1928 §6. The address that the proxy bound says nothing to us, but its length does.
    private func receiveReply(_ bytes: UnsafeRawBufferPointer) -> ProxyStep {
        guard bytes.count >= 2 else { return .more(consumed: 0) }
        guard bytes[0] == 5 else { return .failed(ProxyFailure(.other, 0, "its reply is malformed")) }
        guard bytes[1] == 0 else {
            return .failed(ProxyFailure(.socks, Int(bytes[1]), Self.words(for: bytes[1])))
        }
        guard bytes.count >= 5 else { return .more(consumed: 0) }
        let size: Int
        switch bytes[3] {
        case 1: size = 4
        case 3: size = 1 + Int(bytes[4])
        case 4: size = 16
        default: return .failed(ProxyFailure(.other, 0, "its reply has an unknown kind of address"))
        }
        let whole = 4 + size + 2
        return bytes.count >= whole ? .connected(consumed: whole) : .more(consumed: 0)
    }

    private static func words(for code: UInt8) -> String {
        switch code {
        case 1: "it failed to connect"
        case 2: "its rules do not allow the connection"
        case 3: "the network is unreachable from it"
        case 4: "the host is unreachable from it"
        case 5: "the target refused the connection"
        case 6: "the time to live expired on the way"
        case 7: "it does not support CONNECT"
        case 8: "it does not support that kind of address"
        default: "it failed with code \(code)"
        }
    }
}
