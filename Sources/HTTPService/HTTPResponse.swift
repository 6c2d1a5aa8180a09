import WebSocketProtocol

/// What answers an HTTP request. `HTTPSession` adds Content-Length or Transfer-Encoding, Connection and Date.
public struct HTTPResponse {
    /// What follows the head.
    public enum Body {
        case none
        case bytes([UInt8])
        case stream(HTTPBodyStream)
    }

    public var status: Int
    public var headers: [HTTPHeader]
    public var body: Body

    public init(status: Int, headers: [HTTPHeader] = [], body: Body = .none) {
        self.status = status
        self.headers = headers
        self.body = body
    }

    /// A text of this type.
    public init(status: Int, type: String, text: String, headers: [HTTPHeader] = []) {
        self.init(
            status: status, headers: [HTTPHeader("Content-Type", type)] + headers, body: .bytes(Array(text.utf8)))
    }
}
