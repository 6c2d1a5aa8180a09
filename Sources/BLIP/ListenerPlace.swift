/// One of the places where a listener listens.
public struct ListenerPlace: Sendable {
    /// 0: a Unix socket.
    public let port: UInt16
    /// By which a client on this machine can connect.
    public let url: Text
}
