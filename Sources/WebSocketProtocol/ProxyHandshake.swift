/// The client's side of whichever protocol a proxy speaks.
public enum ProxyHandshake: Sendable {
    case connect(ConnectHandshake)
    case socks(SOCKSHandshake)

    /// What is sent first, also on a new connection after `.again`.
    public mutating func greeting() -> [UInt8] {
        switch self {
        case .connect(var handshake):
            defer { self = .connect(handshake) }
            return handshake.request()
        case .socks(let handshake): return handshake.greeting
        }
    }

    /// Looks at what came. Bytes that were not taken are to be given again, with more behind them.
    public mutating func receive(_ bytes: UnsafeRawBufferPointer) -> ProxyStep {
        switch self {
        case .connect(var handshake):
            defer { self = .connect(handshake) }
            return handshake.receive(bytes)
        case .socks(var handshake):
            defer { self = .socks(handshake) }
            return handshake.receive(bytes)
        }
    }
}
