/// What `WebSocketParser.next` found at the start of the buffer.
///
/// Pointers lie in the caller's buffer or in the parser's own fragment buffer. They are valid until the next call of
/// the parser and as long as the caller leaves its buffer alone. `consumed` counts from the buffer's start and includes
/// the header.
public enum WebSocketEvent {
    /// The frame is not whole yet: it needs `needed` bytes from the buffer's start, as far as can be said now; more
    /// than the buffer has. Nothing was consumed or changed. Call again with the same bytes and more behind them.
    case incomplete(needed: Int)
    /// A fragment was taken in, or bytes behind the peer's close frame were dropped. Go on behind it.
    case consumed(Int)
    /// A whole binary message.
    case binary(UnsafeMutableRawBufferPointer, consumed: Int)
    /// A whole text message. It is valid UTF-8.
    case text(UnsafeMutableRawBufferPointer, consumed: Int)
    /// A ping; answer with a pong of the same payload (at most 125 bytes).
    case ping(UnsafeRawBufferPointer, consumed: Int)
    /// A pong, asked for or not.
    case pong(UnsafeRawBufferPointer, consumed: Int)
    /// The peer's close frame. `code` is nil if it carried none; otherwise it is one that may be on the wire. `reason`
    /// is valid UTF-8, at most 123 bytes.
    case close(code: UInt16?, reason: UnsafeRawBufferPointer, consumed: Int)
    /// The peer broke RFC 6455 or the message limit. Close with `code` (1002, 1007 or 1009). Every later call gives the
    /// same.
    case failed(code: UInt16, text: StaticString)
}
