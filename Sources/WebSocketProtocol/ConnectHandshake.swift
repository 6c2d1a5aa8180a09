/// The client's side of HTTP CONNECT (RFC 9110 §9.3.6): bytes in, bytes out.
///
/// A 407 is answered as `HTTPAuthenticator` says: on the same connection behind the refusal's body, or on a new one.
public struct ConnectHandshake: Sendable {
    private enum Stage: Sendable {
        case head
        /// The rest of a refusal, behind which the proxy can be asked again.
        case body(HTTPBodySkipper)
        /// The same, while the program thinks about its answer.
        case asking(HTTPBodySkipper)
        /// The connection cannot be used again.
        case ended
    }

    private let target: ProxyTarget
    private let userAgent: String?
    private let maximumHead: Int
    private let entropy: @Sendable () -> [UInt8]
    private let asks: Bool
    private var authenticator: HTTPAuthenticator
    private var parser: HTTPHeadParser
    private var stage = Stage.head

    /// - Parameters:
    ///   - credentials: who we are to the proxy; nil: nobody.
    ///   - isPreemptive: send a password before it is asked for.
    ///   - asks: whether somebody may know more, so that `.asks` comes instead of a failure.
    ///   - entropy: gives 16 fresh random bytes.
    public init(
        target: ProxyTarget, userAgent: String?, maximumHead: Int = 16384, credentials: HTTPCredentials? = nil,
        isPreemptive: Bool = false, asks: Bool = false, entropy: @escaping @Sendable () -> [UInt8]
    ) {
        self.target = target
        self.userAgent = userAgent
        self.maximumHead = maximumHead
        self.entropy = entropy
        self.asks = asks
        authenticator = HTTPAuthenticator(credentials: credentials, isPreemptive: isPreemptive, isProxy: true)
        parser = HTTPHeadParser(.response, maximum: maximumHead)
    }

    /// How many challenges have come.
    public var challenges: Int { authenticator.challenges }

    /// What is sent first, also on a new connection after `.again`.
    public mutating func request() -> [UInt8] {
        parser = HTTPHeadParser(.response, maximum: maximumHead)
        stage = .head
        var text = "CONNECT \(target.authority) HTTP/1.1\r\nHost: \(target.authority)\r\n"
        if let userAgent { text += "User-Agent: \(userAgent)\r\n" }
        var bytes = Array(text.utf8)
        if let secret = authenticator.header(method: "CONNECT", uri: target.authority, entropy: entropy()) {
            bytes += Array("\(authenticator.headerName): ".utf8) + secret.bytes + Array("\r\n".utf8)
        }
        return bytes + Array("\r\n".utf8)
    }

    /// Looks at what came. Bytes that were not taken are to be given again, with more behind them.
    public mutating func receive(_ bytes: UnsafeRawBufferPointer) -> ProxyStep {
        switch stage {
        case .head: break
        case .body(let skipper): return skip(skipper, bytes, from: 0)
        case .asking(let skipper): return wait(skipper, bytes)
        case .ended: return .more(consumed: bytes.count)
        }
        switch parser.feed(bytes) {
        case .incomplete: return .more(consumed: 0)
        case .failed(_, let text):
            let isTLS = bytes.first == 0x15 || bytes.first == 0x16
            let why = isTLS ? "it looks like TLS; use an https proxy URL" : text
            return .failed(ProxyFailure(.other, 0, "it does not answer as an HTTP proxy: \(why)"))
        case .request: return .failed(ProxyFailure(.other, 0, "it does not answer as an HTTP proxy"))
        case .response(let head, let consumed):
            if head.isInterim {
                parser = HTTPHeadParser(.response, maximum: maximumHead)
                return .more(consumed: consumed)
            }
            if (200...299).contains(head.status) { return .connected(consumed: consumed) }
            if head.status == 407 { return authenticate(head, bytes, consumed) }
            let reason = head.reason.isEmpty ? "" : " \(HTTPSyntax.quoted(head.reason))"
            return .failed(
                ProxyFailure(.http, head.status, "it answered with HTTP status \(head.status)\(reason)"))
        }
    }

    private mutating func authenticate(
        _ head: HTTPResponseHead, _ bytes: UnsafeRawBufferPointer, _ consumed: Int
    ) -> ProxyStep {
        switch authenticator.receive(head) {
        case .retry: return skip(HTTPBodySkipper(head), bytes, from: consumed)
        case .unanswered(let list, let text):
            let failure = ProxyFailure(.http, 407, "\(text); put user name and password into the proxy's URL")
            guard asks else { return .failed(failure) }
            stage = .asking(HTTPBodySkipper(head))
            return .asks(list, failure, consumed: consumed)
        case .malformed(let text): return .failed(ProxyFailure(.http, 407, text))
        }
    }

    // MARK: The program's answers

    /// Goes on with what the program gives for the challenges that came last.
    /// - Returns: `.send`, `.again`, or `.more` while the refusal's body is still coming.
    public mutating func answer(_ credentials: HTTPCredentials, to list: [HTTPChallenge]) -> ProxyStep {
        _ = authenticator.answer(credentials, to: list)
        return goOn()
    }

    /// The same with a value for the header, of whatever scheme.
    public mutating func answer(header: SecretBytes) -> ProxyStep {
        authenticator.answer(header: header)
        return goOn()
    }

    /// The connection has ended while the program thinks.
    public mutating func connectionDidEnd() { stage = .ended }

    private mutating func goOn() -> ProxyStep {
        guard case .asking(let skipper) = stage else { return .again }
        switch skipper.state {
        case .reading:
            stage = .body(skipper)
            return .more(consumed: 0)
        case .done: return .send(request(), consumed: 0)
        case .unusable: return .again
        }
    }

    private mutating func wait(_ skipper: HTTPBodySkipper, _ bytes: UnsafeRawBufferPointer) -> ProxyStep {
        var skipper = skipper
        let taken = skipper.feed(bytes)
        // What follows a refusal without having been asked for is no answer to the next request.
        stage = taken < bytes.count ? .ended : .asking(skipper)
        return .more(consumed: bytes.count)
    }

    private mutating func skip(
        _ skipper: HTTPBodySkipper, _ bytes: UnsafeRawBufferPointer, from start: Int
    ) -> ProxyStep {
        var skipper = skipper
        let taken = start + skipper.feed(UnsafeRawBufferPointer(rebasing: bytes[min(start, bytes.count)...]))
        switch skipper.state {
        case .reading:
            stage = .body(skipper)
            return .more(consumed: taken)
        case .done: return .send(request(), consumed: taken)
        case .unusable: return .again
        }
    }
}
