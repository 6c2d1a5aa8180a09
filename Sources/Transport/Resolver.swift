import CSystem
import Glibc
import Synchronization

/// Name lookup by the system's resolver, on up to four threads of its own.
///
/// The threads are made on demand, shared by all loops, and end after ten seconds without work. A lookup that was
/// cancelled is not waited for, but the system cannot be stopped: its thread is free when the system answers.
public enum Resolver {
    public typealias Completion = (Result<[SocketAddress], TransportError>) -> Void

    /// A lookup under way; loop thread only.
    public final class Lookup: LoopWork, @unchecked Sendable {
        // Sendable: `completion` is touched on the loop's thread only; `result` before posting and in `run`.
        fileprivate let loop: EventLoop
        fileprivate let host: String
        fileprivate let port: UInt16
        fileprivate var result: Result<[SocketAddress], TransportError>?
        private var completion: Completion?
        fileprivate let isCancelled = Atomic<Bool>(false)

        fileprivate init(loop: EventLoop, host: String, port: UInt16, completion: @escaping Completion) {
            self.loop = loop
            self.host = host
            self.port = port
            self.completion = completion
        }

        /// Forgets the lookup; its completion is never called.
        public func cancel() {
            isCancelled.store(true, ordering: .relaxed)
            completion = nil
        }

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
        } else if let error = ResolverPool.current.enqueue(lookup) {
            lookup.result = .failure(error)
            loop.post(lookup)
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

/// The threads of the resolver, and the lookups that wait for one.
final class ResolverPool: @unchecked Sendable {
    // Sendable: the state is touched with the monitor locked only.

    private static let maximumThreads = 4
    private static let idleTime: UInt64 = 10_000_000_000

    private static let shared = Locked<ResolverPool?>(nil)

    private let process = csystem_process()
    private let monitor: OpaquePointer
    private var queue = [Resolver.Lookup]()
    private var threads = 0
    private var idleThreads = 0

    private init(_ monitor: OpaquePointer) {
        self.monitor = monitor
    }

    /// The pool of this process: threads do not survive a fork, so a child makes its own.
    static var current: Handle {
        shared.withLock { pool in
            if let pool, pool.process == csystem_process() { return Handle(pool: pool) }
            guard let monitor = csystem_monitor_new() else { return Handle(pool: nil) }
            let fresh = ResolverPool(monitor)
            pool = fresh
            return Handle(pool: fresh)
        }
    }

    /// The pool, if there was memory for it.
    struct Handle {
        let pool: ResolverPool?

        /// Queues the lookup for a thread. An error: there is no thread, and none can be made.
        func enqueue(_ lookup: Resolver.Lookup) -> TransportError? {
            pool.map { $0.enqueue(lookup) } ?? .posix(ENOMEM, "look up \(lookup.host)")
        }
    }

    private func enqueue(_ lookup: Resolver.Lookup) -> TransportError? {
        csystem_monitor_lock(monitor)
        defer { csystem_monitor_unlock(monitor) }
        queue.append(lookup)
        if idleThreads >= queue.count || threads >= Self.maximumThreads {
            csystem_monitor_signal(monitor)
            return nil
        }
        let context = Unmanaged.passRetained(self)
        var id: UInt64 = 0
        let result = csystem_thread_start(
            "blip-resolver", true,
            { context in
                guard let context else { return }
                Unmanaged<ResolverPool>.fromOpaque(context).takeRetainedValue().work()
            }, context.toOpaque(), &id)
        if result >= 0 {
            threads += 1
            return nil
        }
        context.release()
        if threads > 0 { return nil }
        queue.removeAll { $0 === lookup }
        return .posix(-result, "start a thread to look up \(lookup.host)")
    }

    private func work() {
        csystem_monitor_lock(monitor)
        while true {
            if queue.isEmpty {
                idleThreads += 1
                let isInTime = csystem_monitor_wait(monitor, csystem_now() &+ Self.idleTime)
                idleThreads -= 1
                if !isInTime, queue.isEmpty { break }
                continue
            }
            let lookup = queue.removeFirst()
            csystem_monitor_unlock(monitor)
            if !lookup.isCancelled.load(ordering: .relaxed) {
                lookup.result = Resolver.lookUp(lookup.host, lookup.port)
            }
            lookup.loop.post(lookup)
            csystem_monitor_lock(monitor)
        }
        threads -= 1
        csystem_monitor_unlock(monitor)
    }
}
