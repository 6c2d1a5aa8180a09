import CSystem
import Glibc

/// Looks the SRV records of a service up (RFC 2782) by the system's resolver, off the loop.
public final class ServiceLookup: ResolverJob, @unchecked Sendable {
    public typealias Completion = (Result<[ServiceTarget], TransportError>) -> Void

    private var completion: Completion?
    private var result: Result<[ServiceTarget], TransportError>?

    private static let maximumTargets = 32

    /// Asks for the servers of `_service._tcp.host`, in the order in which they should be tried.
    ///
    /// - Parameter completion: called once, on the loop, never from inside this call, and not after `cancel`. An empty
    ///   list: the name has no such record.
    public static func start(
        loop: EventLoop, service: String, host: String, completion: @escaping Completion
    ) -> ServiceLookup {
        let lookup = ServiceLookup(loop: loop, name: "_\(service)._tcp.\(host)")
        lookup.completion = completion
        lookup.start()
        return lookup
    }

    override public func cancel() {
        super.cancel()
        completion = nil
    }

    override func fail(_ error: TransportError) { result = .failure(error) }

    override public func run() {
        let done = completion
        completion = nil
        if let result { done?(result) }
    }

    override func ask() {
        guard !name.utf8.contains(0), name.utf8.count < 256 else {
            result = .success([])
            return
        }
        result = withUnsafeTemporaryAllocation(of: csystem_service.self, capacity: Self.maximumTargets) { buffer in
            let count = csystem_lookup_service(
                name, buffer.baseAddress, Int32(Self.maximumTargets), Self.nameServerPort)
            // Name servers that do not answer: whoever asks falls back to the name itself.
            guard count > 0 else { return .success([]) }
            var targets = [ServiceTarget]()
            for index in 0..<Int(count) {
                let record = buffer[index]
                let host = withUnsafeBytes(of: record.host) { String(decoding: $0.prefix { $0 != 0 }, as: UTF8.self) }
                targets.append(
                    ServiceTarget(host: host, port: record.port, priority: record.priority, weight: record.weight))
            }
            // A target "." says that the service is decidedly not there.
            if targets.count == 1, targets[0].host.isEmpty || targets[0].host == "." {
                return .failure(
                    TransportError(
                        domain: .dns, kind: .resolve, code: 0,
                        text: "look up \(name): the service is not offered there"))
            }
            var generator = SystemRandomNumberGenerator()
            return .success(ServiceTarget.ordered(targets.filter { !$0.host.isEmpty }, using: &generator))
        }
    }

    #if DEBUG
        private static let override = Locked<UInt16>(0)
        private static var nameServerPort: UInt16 { override.withLock { $0 } }

        /// Tests: asks the name server at this port of 127.0.0.1 instead of the system's; 0 ends that.
        public static func setNameServer(port: UInt16) {
            override.withLock { $0 = port }
        }
    #else
        private static let nameServerPort: UInt16 = 0
    #endif
}
