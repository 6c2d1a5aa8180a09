public final class Connector: @unchecked Sendable {
    public struct Options: Sendable {
        public var timeout: Int64 = 15_000
        public var attemptDelay: Int64 = 250
        public init() {}
    }
    init() {}
    public static func connect(
        loop: EventLoop, host: String, port: UInt16, options: Options = Options(),
        completion: @escaping (Result<Int32, TransportError>) -> Void
    ) -> Connector { Connector() }
    public static func connect(
        loop: EventLoop, unixPath: String, options: Options = Options(),
        completion: @escaping (Result<Int32, TransportError>) -> Void
    ) -> Connector { Connector() }
    public func cancel() {}
}
