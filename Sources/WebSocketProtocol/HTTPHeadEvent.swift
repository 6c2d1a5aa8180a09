/// What `HTTPHeadParser.feed` found.
public enum HTTPHeadEvent: Sendable, Equatable {
    /// The head is not whole yet. Nothing was consumed.
    case incomplete
    /// A whole request head; the bytes behind `consumed` are the caller's.
    case request(HTTPRequestHead, consumed: Int)
    /// A whole response head; the bytes behind `consumed` are the caller's.
    case response(HTTPResponseHead, consumed: Int)
    /// It is not an HTTP head that we accept. `status`: what to answer to a request; 0 for a response.
    case failed(status: Int, text: String)
}
