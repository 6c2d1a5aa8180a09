/// The flags of a message, with the wire values of versions 2 and 3; version 1 has the same ones a bit higher.
public struct MessageFlags: OptionSet, Sendable {
    /// The bits as versions 2 and 3 have them on the wire.
    public let rawValue: UInt8

    /// Flags with these wire bits.
    @inline(__always)
    public init(rawValue: UInt8) { self.rawValue = rawValue }

    /// The message goes compressed, if the engine's compression level allows.
    public static let compressed = MessageFlags(rawValue: 0x08)
    /// The message may pass others in the outbox.
    public static let urgent = MessageFlags(rawValue: 0x10)
    /// A request that gets no response.
    public static let noReply = MessageFlags(rawValue: 0x20)
    /// Versions 1 and 2: a message of the protocol itself ("Bye").
    public static let meta = MessageFlags(rawValue: 0x80)
}
