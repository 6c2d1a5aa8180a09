/// The opcodes of RFC 6455 §5.2. All others are reserved and refused.
public enum WebSocketOpcode: UInt8, Sendable {
    /// A further fragment of the message under way.
    case continuation = 0x0
    /// A text message, or its first fragment.
    case text = 0x1
    /// A binary message, or its first fragment.
    case binary = 0x2
    /// The sender ends its side of the conversation.
    case close = 0x8
    /// Asks for a pong with the same payload.
    case ping = 0x9
    /// Answers a ping, or is sent unasked as a sign of life.
    case pong = 0xA
}
