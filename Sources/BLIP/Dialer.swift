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
    /// Asks the program for what a proxy wants, which `answer` then gives; false: there is nobody to ask.
    private var ask: ((ProxyQuestion) -> Bool)?
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
    /// The program thinks about its answer to the proxy.
    private var isAsking = false
    /// The proxy was asked again on a connection that it may have ended meanwhile.
    private var mayBeGone = false

    /// - Parameter completion: called once, on the loop, never from inside this call, and not after `cancel`. The stream
    ///   is not reading and has this object as its delegate until it is handed over.
    init(
        loop: EventLoop, plan: DialPlan, ask: ((ProxyQuestion) -> Bool)? = nil, completion: @escaping Completion
    ) {
        self.loop = loop
        self.plan = plan
        self.ask = ask
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
        ask = nil
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
                    credentials: plan.proxyCredentials ?? proxy.credentials, isPreemptive: proxy.kind == .https,
                    asks: ask != nil, entropy: { Randomness.bytes(16) }))
        }
    }

    /// The bytes that the target has sent already stay with the stream.
    func stream(_ stream: Transport.Stream, didReceive bytes: UnsafeMutableRawBufferPointer) -> Int {
        guard let proxy = plan.proxy, var handshake else { return 0 }
        mayBeGone = false
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
                connectAgain()
                return bytes.count
            case .asks(let list, let failure, let consumed):
                taken += min(consumed, bytes.count - taken)
                isAsking = true
                let question = ProxyQuestion(
                    proxy: proxy, list: list, challenges: handshake.challenges, failure: self.failure(proxy, failure))
                guard ask?(question) == true else {
                    finish(.failure(question.failure))
                    return bytes.count
                }
                guard completion != nil else { return bytes.count }
                if taken == bytes.count { return taken }
            case .failed(let failure):
                refused(proxy, failure)
                return bytes.count
            }
        }
    }

    private func connectAgain() {
        stream?.close()
        stream = nil
        mayBeGone = false
        connect()
    }

    /// Goes on with what the program has answered to a question.
    func answer(_ change: (inout ConnectHandshake) -> ProxyStep) {
        guard isAsking, completion != nil else { return }
        isAsking = false
        switch handshake?.goOn(change) {
        case .send(let request, _):
            output += request
            mayBeGone = true
            stream?.requestOutput()
        case .again: connectAgain()
        default: break
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
        finish(.failure(self.failure(proxy, failure)))
    }

    private func failure(_ proxy: ProxyURL, _ failure: ProxyFailure) -> Failure {
        let domain =
            switch failure.domain {
            case .http: "HTTP"
            case .socks: "SOCKS"
            case .other: "BLIP"
            }
        return Failure(
            BLIP_ERROR_PROXY, domain: domain, code: Int64(failure.code),
            "The proxy \(proxy) does not lead to \(plan.target): \(failure.text).")
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
        if isAsking {
            _ = handshake?.goOn { handshake in
                handshake.connectionDidEnd()
                return .again
            }
            return
        }
        // A proxy may end an idle connection in the moment in which it is used again (RFC 9112 §9.3.1).
        if mayBeGone { return connectAgain() }
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
