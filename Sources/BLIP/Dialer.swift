import CBLIP
import Transport
import WebSocketProtocol

/// Makes the byte stream to a server: where the servers are, a socket, and the way through a proxy.
///
/// TLS with the server and everything after it are the owner's. Loop thread only; the owner keeps it until it has
/// completed, and bounds its time.
final class Dialer: StreamDelegate, @unchecked Sendable {
    // Sendable: touched on its loop's thread only.
    typealias Completion = (Result<Transport.Stream, Failure>) -> Void

    private let loop: EventLoop
    private let plan: DialPlan
    private var completion: Completion?
    /// What is going on, for the text of a timeout: "connecting to host:port".
    private(set) var activity: String

    private var service: ServiceLookup?
    private var lookup: Resolver.Lookup?
    private var connector: Connector?
    private var stream: Transport.Stream?
    /// Servers that were not tried yet, the next one first.
    private var servers: [(host: String, port: UInt16)] = []
    /// What the proxy is to connect to, likewise.
    private var targets: [ProxyTarget] = []
    private var handshake: ProxyHandshake?
    private var output: [UInt8] = []

    /// - Parameter completion: called once, on the loop, never from inside this call, and not after `cancel`. The stream
    ///   is not reading and has this object as its delegate until it is handed over.
    init(loop: EventLoop, plan: DialPlan, completion: @escaping Completion) {
        self.loop = loop
        self.plan = plan
        self.completion = completion
        activity = "connecting to \(plan.target)"
        start()
    }

    /// Gives up; the completion is never called.
    func cancel() {
        completion = nil
        tidyUp()
    }

    private func start() {
        if let adopted = plan.adopted {
            loop.post { [self] in takeOver(adopted) }
        } else if let proxy = plan.proxy {
            prepareTargets(proxy)
        } else if plan.usesService {
            activity = "looking up the servers of \(plan.host)"
            service = ServiceLookup.start(loop: loop, service: "blip", host: plan.host) { [self] result in
                service = nil
                switch result {
                case .failure(let error): finish(.failure(Failure(error)))
                case .success(let found):
                    servers = found.map { ($0.host, $0.port) }
                    if servers.isEmpty { servers = [(plan.host, plan.port)] }
                    connect()
                }
            }
        } else {
            servers = [(plan.host, plan.port)]
            connect()
        }
    }

    private func finish(_ result: Result<Transport.Stream, Failure>) {
        let done = completion
        completion = nil
        if case .success = result { stream = nil }
        tidyUp()
        done?(result)
    }

    private func tidyUp() {
        service?.cancel()
        service = nil
        lookup?.cancel()
        lookup = nil
        connector?.cancel()
        connector = nil
        stream?.close()
        stream = nil
    }

    // MARK: The socket

    private func connect() {
        // The connector is let go of when it is done or cancelled, and with it this reference.
        let done: (Result<Int32, TransportError>) -> Void = { [self] result in
            connector = nil
            switch result {
            case .success(let descriptor): didConnect(descriptor)
            case .failure(let error): didNotConnect(error)
            }
        }
        if let path = plan.unixPath {
            servers = []
            connector = Connector.connect(loop: loop, unixPath: path, options: plan.connector, completion: done)
            return
        }
        let (host, port) = plan.proxy.map { ($0.host, $0.port) } ?? servers.removeFirst()
        let kind = plan.proxy == nil ? "" : "the proxy "
        activity = "connecting to \(kind)\(ProxyTarget(host: host, port: port).authority)"
        connector = Connector.connect(loop: loop, host: host, port: port, options: plan.connector, completion: done)
    }

    private func takeOver(_ adopted: AdoptedDescriptor) {
        let descriptor = adopted.take()
        guard descriptor >= 0 else {
            return finish(
                .failure(
                    Failure(
                        BLIP_ERROR_STATE, "The socket that the connection was given is used up, and it has no other.")))
        }
        didConnect(descriptor)
    }

    private func didNotConnect(_ error: TransportError) {
        if plan.proxy == nil, !servers.isEmpty { return connect() }
        var failure = Failure(error)
        if let proxy = plan.proxy { failure.text = "The proxy \(proxy) cannot be reached: \(failure.text)" }
        finish(.failure(failure))
    }

    private func didConnect(_ descriptor: Int32) {
        guard completion != nil else { return closeDescriptor(descriptor) }
        let stream = Transport.Stream(loop: loop, descriptor: descriptor, delegate: self)
        guard let proxy = plan.proxy else { return finish(.success(stream)) }
        self.stream = stream
        stream.startReading()
        if let tls = plan.proxyTLS {
            activity = "the TLS handshake with the proxy \(proxy)"
            stream.startTLS(tls, serverName: proxy.host, isServer: false)
        } else {
            negotiate(proxy)
        }
    }

    // MARK: The proxy

    private func prepareTargets(_ proxy: ProxyURL) {
        guard proxy.kind == .socks5 else {
            targets = [ProxyTarget(host: plan.host, port: plan.port, address: ProxyTarget.address(plan.host))]
            return connect()
        }
        activity = "looking up \(plan.host)"
        lookup = Resolver.resolve(loop: loop, host: plan.host, port: plan.port) { [self] result in
            lookup = nil
            switch result {
            case .failure(let error): finish(.failure(Failure(error)))
            case .success(let addresses):
                targets = plan.connector.policy.ordered(addresses).map {
                    ProxyTarget(host: $0.host, port: plan.port, address: ProxyTarget.address($0.host))
                }
                guard !targets.isEmpty else {
                    return finish(
                        .failure(
                            Failure(BLIP_ERROR_RESOLVE, "\(plan.host) has no address of the family that is wanted.")))
                }
                connect()
            }
        }
    }

    private func negotiate(_ proxy: ProxyURL) {
        activity = "the negotiation with the proxy \(proxy)"
        if handshake == nil, let target = targets.first { handshake = makeHandshake(proxy, target) }
        output = handshake?.greeting() ?? []
        stream?.requestOutput()
    }

    private func makeHandshake(_ proxy: ProxyURL, _ target: ProxyTarget) -> ProxyHandshake {
        switch proxy.kind {
        case .socks5, .socks5h:
            .socks(SOCKSHandshake(target: target, user: proxy.user, password: proxy.password))
        case .http, .https:
            // Where anybody on the way could read a password, the proxy may first ask for a better way.
            .connect(
                ConnectHandshake(
                    target: target, userAgent: plan.userAgent, maximumHead: plan.maximumHead,
                    credentials: proxy.credentials, isPreemptive: proxy.kind == .https,
                    entropy: { Randomness.bytes(16) }))
        }
    }

    /// The bytes that the target has sent already stay with the stream.
    func stream(_ stream: Transport.Stream, didReceive bytes: UnsafeMutableRawBufferPointer) -> Int {
        guard let proxy = plan.proxy, var handshake else { return 0 }
        var taken = 0
        while true {
            let step = handshake.receive(UnsafeRawBufferPointer(rebasing: bytes[taken...]))
            self.handshake = handshake
            switch step {
            case .more(let consumed):
                taken += min(consumed, bytes.count - taken)
                if consumed == 0 || taken == bytes.count { return taken }
            case .send(let answer, let consumed):
                taken += min(consumed, bytes.count - taken)
                output += answer
                stream.requestOutput()
                if taken == bytes.count { return taken }
            case .connected(let consumed):
                taken += min(consumed, bytes.count - taken)
                stream.pauseReading()
                finish(.success(stream))
                return taken
            case .again:
                stream.close()
                self.stream = nil
                connect()
                return bytes.count
            case .failed(let failure):
                refused(proxy, failure)
                return bytes.count
            }
        }
    }

    private func refused(_ proxy: ProxyURL, _ failure: ProxyFailure) {
        stream?.close()
        stream = nil
        // Of an address among several: the next one may be better.
        if failure.domain == .socks, (3...8).contains(failure.code), targets.count > 1 {
            targets.removeFirst()
            handshake = nil
            return connect()
        }
        let domain =
            switch failure.domain {
            case .http: "HTTP"
            case .socks: "SOCKS"
            case .other: "BLIP"
            }
        finish(
            .failure(
                Failure(
                    BLIP_ERROR_PROXY, domain: domain, code: Int64(failure.code),
                    "The proxy \(proxy) does not lead to \(plan.target): \(failure.text).")))
    }

    func stream(_ stream: Transport.Stream, fill buffer: UnsafeMutableRawBufferPointer) -> Int {
        let size = min(output.count, buffer.count)
        buffer.copyBytes(from: output[..<size])
        output.removeFirst(size)
        return size
    }

    func streamDidSecure(_ stream: Transport.Stream) {
        if let proxy = plan.proxy { negotiate(proxy) }
    }

    func streamDidFlush(_ stream: Transport.Stream) {}

    func stream(_ stream: Transport.Stream, didEnd error: TransportError?) {
        self.stream = nil
        let proxy = plan.proxy.map { "The proxy \($0)" } ?? "The server"
        guard let error else {
            return finish(
                .failure(
                    Failure(
                        BLIP_ERROR_CONNECTION_LOST, "\(proxy) ended the connection before it led to \(plan.target).")))
        }
        var failure = Failure(error)
        failure.text = "\(proxy) cannot be used: \(failure.text)"
        finish(.failure(failure))
    }
}
