/// Limits of one connection, in bytes unless said otherwise.
public struct Limits: Sendable {
    /// The largest frame that is accepted. A larger one ends the connection.
    public var incomingFrame = 1 << 20
    /// The most encoded properties of a message, either way. A message received with more fails.
    public var properties = 100 << 10
    /// The most of one message that is held in memory. A message that is streamed has no limit of its own.
    public var message = 64 << 20
    /// The most incoming messages that may be unfinished at a time (a count). One more ends the connection.
    public var unfinishedMessages = 4096
    /// The memory of all unfinished incoming messages. The message that passes it fails.
    public var unfinishedBytes = 256 << 20
    /// How much of a compressed frame's content is inflated by one call, so that the owner can serve others before the rest
    /// (at least 1). Ordinary frames have less.
    public var inflatedAtOnce = 512 << 10
    /// The largest frame that is sent, with header and checksum; deployed peers refuse more than 32 KiB.
    /// At least 64; in version 1 at most 65,535.
    public var outgoingFrame = 16384
    /// The largest frame of a message that is not urgent while the next one in the queue is.
    public var smallFrame = 4096

    /// The defaults.
    public init() {}
}
