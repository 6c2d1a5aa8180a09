/// Takes WebSocket frames off a contiguous buffer (RFC 6455 §5).
public struct WebSocketParser: ~Copyable {
    /// Makes a parser for one connection.
    public init(role: WebSocketRole, maximumMessage: Int) {}

    /// Looks at the frame at the start of `bytes`, unmasks it in place and says what it is.
    public mutating func next(_ bytes: UnsafeMutableRawBufferPointer) -> WebSocketEvent {
        .incomplete(needed: bytes.count + 1)
    }

    /// Gives memory back that is needed only between the fragments of a message.
    public mutating func releaseIdleMemory() {}
}
