/// What the first bytes of a version 1 stream say about the frame that begins there.
public enum V1Length: Equatable, Sendable {
    /// The header (12 bytes) is not there yet.
    case needMore
    /// The frame has so many bytes in all, header included.
    case length(Int)
    /// No BLIP 1.1 frame begins here.
    case failed(ProtocolError)
}
