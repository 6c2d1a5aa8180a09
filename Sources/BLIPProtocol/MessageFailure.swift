/// Why one message cannot be completed while its connection goes on.
public enum MessageFailure: UInt8, Error, Sendable {
    /// The properties are malformed: cut short, not in pairs, not UTF-8, an unknown abbreviation.
    case properties
    /// The properties are above `Limits.properties`.
    case propertiesTooLarge
    /// The body is not valid gzip data (versions 1 and 2).
    case body
    /// The message is above `Limits.message`.
    case tooLarge
    /// All unfinished messages together are above `Limits.unfinishedBytes`, or there is no memory.
    case memory
    /// The body source of an outgoing message failed before anything of the message was sent.
    case bodySource

    /// What happened, for people.
    public var text: StaticString {
        switch self {
        case .properties: "The properties of the message are malformed."
        case .propertiesTooLarge: "The properties of the message are above the receiver's limit."
        case .body: "The body of the message cannot be decompressed."
        case .tooLarge: "The message is above the receiver's limit."
        case .memory: "The receiver holds too many unfinished messages."
        case .bodySource: "The source of the message's body failed."
        }
    }

    /// The code of an error response in the domain "BLIP" that fits.
    public var code: Int {
        switch self {
        case .properties, .propertiesTooLarge, .body: 400
        case .tooLarge: 413
        case .memory: 503
        case .bodySource: 501
        }
    }
}
