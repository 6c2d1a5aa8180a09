/// The versions of BLIP: their framing, checksum and compression differ, the rules of messages do not.
public enum ProtocolVersion: UInt8, Sendable {
    /// BLIP 1.1: a byte stream with 12-byte headers, gzip bodies, no acknowledgement.
    case v1 = 1
    /// BLIP 2, subprotocol `BLIP`: varint headers, gzip bodies.
    case v2 = 2
    /// BLIP 3, subprotocol `BLIP_3`: varint headers, a running checksum, one shared deflate stream.
    case v3 = 3
}
