/// What a message is; the raw value is the type on the wire (BLIP §3.1).
public enum MessageKind: UInt8, Sendable {
    /// Asks for a response, unless it says no-reply.
    case request = 0
    /// Answers the request of its number.
    case response = 1
    /// A response that reports an error.
    case error = 2
}
