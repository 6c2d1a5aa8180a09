/// The client's side of HTTP CONNECT (RFC 9110 §9.3.6): bytes in, bytes out.
public struct ConnectHandshake: Sendable {
    /// Makes the value of Proxy-Authorization out of the challenges of a 407; nil: there is no answer to them.
    public typealias Authorize = @Sendable (_ challenges: HTTPHeaders) -> String?

    private enum Stage: Sendable {
        case head
        /// The rest of a refusal's body, behind which the proxy can be asked again.
        case body(left: Int)
    }

    /// The most bytes of a refusal's body that are read for the sake of the same connection.
    private static let maximumBody = 64 << 10

    private let target: ProxyTarget
    private let userAgent: String?
    private let maximumHead: Int
    private let authorize: Authorize?
    private var parser: HTTPHeadParser
    private var authorization: String?
    private var attempts = 0
    private var stage = Stage.head

    /// - Parameters:
    ///   - authorization: sent with the first request; nil: none.
    ///   - authorize: asked when the proxy wants other credentials; at most twice.
    public init(
        target: ProxyTarget, userAgent: String?, maximumHead: Int = 16384, authorization: String? = nil,
        authorize: Authorize? = nil
    ) {
        self.target = target
        self.userAgent = userAgent
        self.maximumHead = maximumHead
        self.authorization = authorization
        self.authorize = authorize
        parser = HTTPHeadParser(.response, maximum: maximumHead)
    }

    /// What is sent first, also on a new connection after `.again`.
    public var request: [UInt8] {
        var text = "CONNECT \(target.authority) HTTP/1.1\r\nHost: \(target.authority)\r\n"
        if let userAgent { text += "User-Agent: \(userAgent)\r\n" }
        if let authorization { text += "Proxy-Authorization: \(authorization)\r\n" }
        return Array((text + "\r\n").utf8)
    }

    /// Looks at what came. Bytes that were not taken are to be given again, with more behind them.
    public mutating func receive(_ bytes: UnsafeRawBufferPointer) -> ProxyStep {
        if case .body(let left) = stage { return skip(left, bytes.count, taken: 0) }
        switch parser.feed(bytes) {
        case .incomplete: return .more(consumed: 0)
        case .failed(_, let text):
            let isTLS = bytes.first == 0x15 || bytes.first == 0x16
            let why = isTLS ? "it looks like TLS; use an https proxy URL" : text
            return .failed(ProxyFailure(.other, 0, "it does not answer as an HTTP proxy: \(why)"))
        case .request: return .failed(ProxyFailure(.other, 0, "it does not answer as an HTTP proxy"))
        case .response(let head, let consumed):
            parser = HTTPHeadParser(.response, maximum: maximumHead)
            if head.isInterim { return .more(consumed: consumed) }
            if (200...299).contains(head.status) { return .connected(consumed: consumed) }
            if head.status == 407, let step = authenticate(head, bytes.count, consumed) { return step }
            return .failed(ProxyFailure(.http, head.status, Self.words(for: head, had: authorization != nil)))
        }
    }

    /// Takes the challenge up; nil: it cannot be answered.
    private mutating func authenticate(_ head: HTTPResponseHead, _ count: Int, _ consumed: Int) -> ProxyStep? {
        guard attempts < 2, let authorize, let value = authorize(head.headers),
            HTTPHeader("Proxy-Authorization", value).isValid
        else { return nil }
        attempts += 1
        authorization = value
        let ends = (head.headers.elements("Connection") + head.headers.elements("Proxy-Connection")).contains {
            HTTPSyntax.equal($0, "close")
        }
        guard !ends, head.minorVersion == 1, head.headers["Transfer-Encoding"] == nil,
            let length = head.headers["Content-Length"].flatMap({ HTTPSyntax.number($0) }), length <= Self.maximumBody
        else { return .again }
        return skip(Int(length), count, taken: consumed)
    }

    private mutating func skip(_ left: Int, _ count: Int, taken: Int) -> ProxyStep {
        let size = min(left, count - taken)
        if size == left {
            stage = .head
            return .send(request, consumed: taken + size)
        }
        stage = .body(left: left - size)
        return .more(consumed: taken + size)
    }

    private static func words(for head: HTTPResponseHead, had credentials: Bool) -> String {
        let reason = head.reason.isEmpty ? "" : " \(HTTPSyntax.quoted(head.reason))"
        guard head.status == 407 else { return "it answered with HTTP status \(head.status)\(reason)" }
        return credentials
            ? "it does not take the user name and password (HTTP status 407)"
            : "it wants authentication (HTTP status 407); put user name and password into the proxy's URL"
    }
}
