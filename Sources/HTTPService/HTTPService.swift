import WebSocketProtocol

/// Answers HTTP requests below a path. Called on loop threads, several at once.
public protocol HTTPService: AnyObject, Sendable {
    /// Whether this request is its business.
    func handles(path: String) -> Bool

    /// Whether it can change something, or shows what is nobody else's business: nobody may get at it through a browser by
    /// a name of his own.
    var isSensitive: Bool { get }

    /// Decides on a request; `isSecure`: it came over TLS.
    func reply(to request: HTTPRequestHead, isSecure: Bool) -> HTTPReply
}
