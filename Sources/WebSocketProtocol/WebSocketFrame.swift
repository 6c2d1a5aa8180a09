/// Writes WebSocket frames (RFC 6455 §5.2).
public enum WebSocketFrame {
    /// The most bytes that a header takes.
    public static let maximumHeader = 14
    /// The most bytes that a whole control frame takes.
    public static let maximumControlFrame = 131

    /// The bytes that the header of a frame with `payload` bytes takes: 2, 4 or 10, and 4 more if masked.
    public static func headerSize(payload: Int, masked: Bool) -> Int { 2 }

    /// Writes a header of the minimal length and returns its size.
    public static func writeHeader(
        opcode: WebSocketOpcode, final: Bool, payload: Int, maskKey: UInt32?, to: UnsafeMutableRawPointer
    ) -> Int { 0 }

    /// Masks or unmasks in place: the two are the same.
    public static func mask(_ bytes: UnsafeMutableRawBufferPointer, key: UInt32, offset: Int = 0) {}

    /// Writes a whole ping or pong and returns its size.
    public static func writeControl(
        _ opcode: WebSocketOpcode, payload: UnsafeRawBufferPointer, maskKey: UInt32?, to: UnsafeMutableRawPointer
    ) -> Int { 0 }

    /// Writes a whole close frame and returns its size.
    public static func writeClose(
        code: UInt16?, reason: UnsafeRawBufferPointer, maskKey: UInt32?, to: UnsafeMutableRawPointer
    ) -> Int { 0 }

    /// Whether a close frame may carry this code.
    public static func isValidCloseCode(_ code: UInt16) -> Bool { true }
}
