public final class Stream: @unchecked Sendable {
    public init(loop: EventLoop, descriptor: Int32, delegate: any StreamDelegate) { self.loop = loop }
    public let loop: EventLoop
    public func startTLS(_ context: TLSContext, serverName: String?, isServer: Bool) {}
    public func startReading() {}
    public func pauseReading() {}
    public func resumeReading() {}
    public var bytesWanted: Int = 0
    public func requestOutput() {}
    public func finishOutput() {}
    public func close() {}
    public var isClosed: Bool { true }
    public var isSecure: Bool { false }
    public var localAddress: SocketAddress { SocketAddress(unixPath: "") }
    public var remoteAddress: SocketAddress { SocketAddress(unixPath: "") }
    public private(set) var bytesSent: UInt64 = 0
    public private(set) var bytesReceived: UInt64 = 0
    public var bytesPending: Int { 0 }
    public var tlsVersion: String? { nil }
    public var tlsCipher: String? { nil }
    public var peerCertificateDER: [UInt8]? { nil }
}
