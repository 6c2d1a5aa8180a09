import WebSocketProtocol

/// Answers HTTP requests below a path. Called on loop threads, several at once.
public protocol HTTPService: AnyObject, Sendable {
    /// Whether this request is its business.
    func handles(path: String) -> Bool

    /// Decides on a request; `isSecure`: it came over TLS.
    func reply(to request: HTTPRequestHead, isSecure: Bool) -> HTTPReply
}
