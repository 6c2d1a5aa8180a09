import CSystem
import Glibc

/// Connects a socket: name lookup, then attempts at the addresses side by side as RFC 8305 ("happy eyeballs") says.
///
/// The families take turns, the next attempt begins after a short delay or when one has failed, the first that succeeds
/// wins. Loop thread only.
public final class Connector: EventSource, @unchecked Sendable {
    // Sendable: touched on its loop's thread only. A source without a descriptor: it hears of the loop's end.

    public struct Options: Sendable {
        /// Milliseconds for everything, the lookup included; negative: no limit.
        public var timeout: Int64 = 15_000
        /// Milliseconds before the next address is tried beside one that does not answer (RFC 8305 §8).
        public var attemptDelay: Int64 = 250
        /// Which addresses of a name are tried.
        public var policy = AddressPolicy.any
        /// What connections are made from; nil: what the system chooses.
        public var local: LocalBinding?

        public init() {}
    }

    public typealias Completion = (Result<Int32, TransportError>) -> Void

    private let options: Options
    /// What the program asked for, for error texts.
    private let target: String
    private var completion: Completion?
    private var lookup: Resolver.Lookup?
    private var addresses = [SocketAddress]()
    private var nextAddress = 0
    private var attempts = [Attempt]()
    private var failures = [(address: SocketAddress, code: Int32)]()
    private let deadlineTimer = ClosureTimer()
    private let delayTimer = ClosureTimer()

    private init(loop: EventLoop, target: String, options: Options, completion: @escaping Completion) {
        self.target = target
        self.options = options
        self.completion = completion
        super.init(loop: loop, descriptor: -1)
        attach()
        deadlineTimer.body = { self.timeOut() }
        delayTimer.body = { self.startNext() }
        if options.timeout >= 0 { loop.schedule(deadlineTimer, at: loop.deadline(after: options.timeout)) }
    }

    /// Connects to a port of a host, given by name or by address.
    ///
    /// - Parameter completion: called once, on the loop, never from inside this call, and not after `cancel`. A
    ///   descriptor in it is the callee's to close.
    public static func connect(
        loop: EventLoop, host: String, port: UInt16, options: Options = Options(), completion: @escaping Completion
    ) -> Connector {
        let target = host.utf8.contains(UInt8(ascii: ":")) ? "[\(host)]:\(port)" : "\(host):\(port)"
        let connector = Connector(loop: loop, target: target, options: options, completion: completion)
        connector.lookup = Resolver.resolve(loop: loop, host: host, port: port) { result in
            connector.lookup = nil
            switch result {
            case .success(let addresses): connector.begin(addresses)
            case .failure(let error): connector.finish(.failure(error))
            }
        }
        return connector
    }

    /// Connects to a Unix-domain socket.
    public static func connect(
        loop: EventLoop, unixPath: String, options: Options = Options(), completion: @escaping Completion
    ) -> Connector {
        let address = SocketAddress(unixPath: unixPath)
        let connector = Connector(loop: loop, target: address.description, options: options, completion: completion)
        loop.post { connector.begin([address]) }
        return connector
    }

    /// Gives up; the completion is never called.
    public func cancel() {
        completion = nil
        tidyUp()
    }

    private func begin(_ found: [SocketAddress]) {
        guard completion != nil else { return }
        addresses = Self.interleaved(found.first?.family == .unix ? found : options.policy.ordered(found))
        startNext()
    }

    /// One address of each family in turn, the first family first (RFC 8305 §4).
    static func interleaved(_ addresses: [SocketAddress]) -> [SocketAddress] {
        guard let family = addresses.first?.family else { return [] }
        let first = addresses.filter { $0.family == family }
        let second = addresses.filter { $0.family != family }
        var mixed = [SocketAddress]()
        for index in 0..<max(first.count, second.count) {
            if index < first.count { mixed.append(first[index]) }
            if index < second.count { mixed.append(second[index]) }
        }
        return mixed
    }

    private func startNext() {
        loop.cancel(delayTimer)
        while completion != nil, nextAddress < addresses.count {
            let address = addresses[nextAddress]
            nextAddress += 1
            switch Attempt.start(self, loop, address, options.local) {
            case .success(let attempt):
                if attempt.isConnected {
                    finish(.success(attempt.surrender()))
                    return
                }
                attempts.append(attempt)
                if nextAddress < addresses.count {
                    loop.schedule(delayTimer, at: loop.deadline(after: options.attemptDelay))
                }
                return
            case .failure(let error):
                failures.append((address, error.code))
            }
        }
        failIfDone()
    }

    private func failIfDone() {
        guard completion != nil, attempts.isEmpty, nextAddress >= addresses.count else { return }
        finish(.failure(combinedError()))
    }

    /// One error for all attempts. Among different reasons a refusal says most: somebody was there.
    private func combinedError() -> TransportError {
        guard let shown = failures.first(where: { $0.code == ECONNREFUSED }) ?? failures.first else {
            return TransportError(
                domain: .dns, kind: .resolve, code: 0, text: "connect to \(target): there is \(options.policy.words)")
        }
        if failures.count == 1 {
            let literal = shown.address.description
            return .posix(shown.code, "connect to \(literal == target ? target : "\(target) (\(literal))")")
        }
        let error = TransportError.posix(shown.code, "connect to \(target)")
        let details = failures.prefix(8).map { failure in
            failure.code == shown.code
                ? failure.address.description : "\(failure.address) \(TransportError.words(for: failure.code))"
        }
        let text = "\(error.text) (\(details.joined(separator: ", ")))"
        return TransportError(domain: error.domain, kind: error.kind, code: error.code, text: text)
    }

    private func timeOut() {
        let what = lookup == nil ? "no answer" : "the name was not found"
        finish(
            .failure(
                TransportError(
                    domain: .timeout, kind: .timedOut, code: ETIMEDOUT,
                    text: "connect to \(target): \(what) within \(options.timeout) ms")))
    }

    private func finish(_ result: Result<Int32, TransportError>) {
        let done = completion
        completion = nil
        tidyUp()
        done?(result)
    }

    private func tidyUp() {
        loop.cancel(deadlineTimer)
        loop.cancel(delayTimer)
        deadlineTimer.body = nil
        delayTimer.body = nil
        lookup?.cancel()
        lookup = nil
        let left = attempts
        attempts = []
        for attempt in left { attempt.detach() }
        detach()
    }

    private func attemptDidConnect(_ attempt: Attempt) {
        attempts.removeAll { $0 === attempt }
        finish(.success(attempt.surrender()))
    }

    private func attempt(_ attempt: Attempt, didFail code: Int32) {
        attempts.removeAll { $0 === attempt }
        attempt.detach()
        failures.append((attempt.address, code))
        if nextAddress < addresses.count {
            startNext()
        } else {
            failIfDone()
        }
    }

    override func loopDidEnd() {
        finish(
            .failure(
                TransportError(
                    domain: .closed, kind: .other, code: 0,
                    text: "connect to \(target): the event loop was stopped")))
    }

    /// A socket that is being connected to one address.
    private final class Attempt: EventSource, @unchecked Sendable {
        let address: SocketAddress
        private(set) var isConnected = false
        private var owner: Connector?
        /// A Unix-domain socket whose listener's queue is full cannot be waited for: it is asked again.
        private let retryTimer = ClosureTimer()
        private static let retryDelay: Int64 = 10

        private init(_ owner: Connector, _ loop: EventLoop, _ address: SocketAddress, _ descriptor: Int32) {
            self.owner = owner
            self.address = address
            super.init(loop: loop, descriptor: descriptor)
        }

        static func start(
            _ owner: Connector, _ loop: EventLoop, _ address: SocketAddress, _ local: LocalBinding?
        ) -> Result<Attempt, TransportError> {
            let descriptor = Syscall.socket(address.systemFamily)
            if descriptor < 0 { return .failure(.posix(-descriptor, "")) }
            let attempt = Attempt(owner, loop, address, descriptor)
            var code: Int32 = 0
            if let local, address.family != .unix { code = attempt.bind(local) }
            if code == 0 { code = attempt.tryConnect() }
            if code != 0 {
                attempt.detach()
                return .failure(.posix(code, ""))
            }
            return .success(attempt)
        }

        /// Returns 0 or an errno.
        private func bind(_ local: LocalBinding) -> Int32 {
            guard let own = local.address(for: address.family) else { return EADDRNOTAVAIL }
            // A port that an earlier connection has just left may be used again.
            if local.port != 0 { _ = csystem_set_reuse_address(descriptor) }
            return -min(Syscall.bind(descriptor, own), 0)
        }

        /// Returns 0 if it is connected or under way, else an errno.
        private func tryConnect() -> Int32 {
            let result = Syscall.connect(descriptor, address)
            if result >= 0 {
                isConnected = true
                return 0
            }
            attach()
            if result == -EINPROGRESS {
                return -watch(CSYSTEM_OUT)
            }
            if result == -EAGAIN, address.family == .unix {
                retryTimer.body = { self.retry() }
                loop.schedule(retryTimer, at: loop.deadline(after: Self.retryDelay))
                return 0
            }
            return -result
        }

        private func retry() {
            let code = tryConnect()
            if code != 0 {
                stop()?.attempt(self, didFail: code)
            } else if isConnected {
                stop()?.attemptDidConnect(self)
            }
        }

        override func handle(events: UInt32) {
            let code = csystem_socket_error(descriptor)
            if code != 0 {
                stop()?.attempt(self, didFail: code)
            } else if events & (CSYSTEM_OUT | CSYSTEM_HUP | CSYSTEM_ERR) != 0 {
                isConnected = true
                stop()?.attemptDidConnect(self)
            }
        }

        override func loopDidEnd() {
            stop()?.loopDidEnd()
        }

        private func stop() -> Connector? {
            let connector = owner
            owner = nil
            loop.cancel(retryTimer)
            retryTimer.body = nil
            return connector
        }

        override func didDetach() { _ = stop() }
    }
}

/// A timer that calls a closure.
final class ClosureTimer: LoopTimer, @unchecked Sendable {
    var body: (() -> Void)?

    override func fire() { body?() }
}
