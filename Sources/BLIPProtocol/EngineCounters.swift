/// What an engine has done since it was made: plain sums, side by side, so that they are copied at once.
public struct EngineCounters: Sendable {
    /// Messages whose last frame was cut.
    public var messagesSent: UInt64 = 0
    /// Messages whose last frame was received, failed and dropped ones left out.
    public var messagesReceived: UInt64 = 0
    /// Frames cut, acknowledgements too.
    public var framesSent: UInt64 = 0
    /// Frames received, acknowledgements too.
    public var framesReceived: UInt64 = 0
    /// Bytes that went into the compressor, and what has become of them on the wire.
    public var compressionInput: UInt64 = 0
    public var compressionOutput: UInt64 = 0
    /// Compressed bytes on the wire, and what they have become.
    public var decompressionInput: UInt64 = 0
    public var decompressionOutput: UInt64 = 0

    /// All zero.
    public init() {}
}
