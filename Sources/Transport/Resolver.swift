public enum Resolver {
    public final class Lookup: @unchecked Sendable {
        init() {}
        public func cancel() {}
    }
    public static func resolve(
        loop: EventLoop, host: String, port: UInt16,
        completion: @escaping (Result<[SocketAddress], TransportError>) -> Void
    ) -> Lookup { Lookup() }
}
