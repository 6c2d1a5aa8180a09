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

    /// How many challenges have come.
    public var challenges: Int {
        if case .connect(let handshake) = self { handshake.challenges } else { 0 }
    }

    /// Goes on after `.asks`, as `change` says.
    public mutating func goOn(_ change: (inout ConnectHandshake) -> ProxyStep) -> ProxyStep {
        guard case .connect(var handshake) = self else { return .again }
        defer { self = .connect(handshake) }
        return change(&handshake)
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
