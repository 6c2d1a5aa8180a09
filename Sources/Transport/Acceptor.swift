public final class Acceptor: @unchecked Sendable {
    init() {}
    public static func bind(loop: EventLoop, host: String, port: UInt16) throws(TransportError) -> Acceptor {
        Acceptor()
    }
    public static func bind(loop: EventLoop, unixPath: String) throws(TransportError) -> Acceptor { Acceptor() }
    public static func adopt(loop: EventLoop, descriptor: Int32) throws(TransportError) -> Acceptor { Acceptor() }
    public var onAccept: ((Int32, SocketAddress) -> Void)?
    public var onError: ((TransportError) -> Void)?
    public func start() {}
    public func pause() {}
    public func resume() {}
    public var port: UInt16 { 0 }
    public var addresses: [SocketAddress] { [] }
    public func close() {}
}
