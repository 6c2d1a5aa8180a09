import CSystem
import Glibc

/// Name lookup by the system's resolver, on up to four threads of its own.
///
/// The threads are made on demand, shared by all loops, and end after ten seconds without work. A lookup that was
/// cancelled is not waited for, but the system cannot be stopped: its thread is free when the system answers.
public enum Resolver {
    public typealias Completion = (Result<[SocketAddress], TransportError>) -> Void

    /// A lookup under way; loop thread only.
    public final class Lookup: ResolverJob, @unchecked Sendable {
        fileprivate let host: String
        fileprivate let port: UInt16
        fileprivate var result: Result<[SocketAddress], TransportError>?
        private var completion: Completion?

        fileprivate init(loop: EventLoop, host: String, port: UInt16, completion: @escaping Completion) {
            self.host = host
            self.port = port
            self.completion = completion
            super.init(loop: loop, name: host)
        }

        override public func cancel() {
            super.cancel()
            completion = nil
        }

        override func ask() { result = Resolver.lookUp(host, port) }

        override func fail(_ error: TransportError) { result = .failure(error) }

        override public func run() {
            let done = completion
            completion = nil
            if let result { done?(result) }
        }
    }

    /// Finds the addresses of a host, in the order in which they should be tried.
    ///
    /// Addresses in digits are answered without a thread.
    /// - Parameter completion: called once, on the loop, never from inside this call, and not after `cancel`.
    public static func resolve(
        loop: EventLoop, host: String, port: UInt16, completion: @escaping Completion
    ) -> Lookup {
        let lookup = Lookup(loop: loop, host: host, port: port, completion: completion)
        if let literal = SocketAddress(literal: host, port: port) {
            lookup.result = .success([literal])
            loop.post(lookup)
        } else if host.isEmpty || host.utf8.count > 253 || host.utf8.contains(0) {
            lookup.result = .failure(
                TransportError(
                    domain: .dns, kind: .resolve, code: EAI_NONAME, text: "look up \(host.debugDescription): not a name"
                ))
            loop.post(lookup)
        } else {
            lookup.start()
        }
        return lookup
    }

    #if DEBUG
        typealias Override = @Sendable (String, UInt16) -> Result<[SocketAddress], TransportError>?
        private static let override = Locked<Override?>(nil)

        /// Tests: answers lookups in the system's place, on the lookup's thread; nil where the system shall.
        static func setOverride(_ new: Override?) {
            override.withLock { $0 = new }
        }
    #endif

    /// Asks the system; blocks.
    static func lookUp(_ host: String, _ port: UInt16) -> Result<[SocketAddress], TransportError> {
        #if DEBUG
            if let answer = override.withLock({ $0 })?(host, port) { return answer }
        #endif
        let capacity = 32
        return withUnsafeTemporaryAllocation(of: sockaddr_storage.self, capacity: capacity) { raw in
            withUnsafeTemporaryAllocation(of: socklen_t.self, capacity: capacity) { lengths in
                var systemError: Int32 = 0
                let count = csystem_lookup(
                    host, raw.baseAddress, lengths.baseAddress, Int32(capacity), &systemError)
                if count < 0 { return .failure(error(host, count + 1000, systemError)) }
                var addresses = [SocketAddress]()
                for index in 0..<Int(count) {
                    var address = SocketAddress(raw[index], lengths[index])
                    address.port = port
                    if !addresses.contains(address) { addresses.append(address) }
                }
                return addresses.isEmpty ? .failure(error(host, EAI_NONAME, 0)) : .success(addresses)
            }
        }
    }

    private static func error(_ host: String, _ code: Int32, _ systemError: Int32) -> TransportError {
        let words =
            code == EAI_SYSTEM
            ? TransportError.words(for: systemError)
            : csystem_lookup_error_text(code).map { String(cString: $0) } ?? "error \(code)"
        return TransportError(domain: .dns, kind: .resolve, code: code, text: "look up \(host): \(words)")
    }
}
