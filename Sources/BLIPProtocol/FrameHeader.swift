/// What the header of a BLIP frame says: for those who look on, not for the engine.
public struct FrameHeader: Sendable {
    public let number: UInt64
    /// 0 to 2: request, response, error; 4 and 5: acknowledgements of a request and of a response.
    public let type: UInt8
    /// All other bits, as they lie in versions 2 and 3.
    public let flags: UInt8

    /// Nil if the frame is too short to have one.
    public init?(_ frame: UnsafeRawBufferPointer, _ version: ProtocolVersion) {
        guard let base = frame.baseAddress else { return nil }
        if version == .v1 {
            guard frame.count >= Engine.v1HeaderSize else { return nil }
            number = UInt64(base.loadUnaligned(fromByteOffset: 4, as: UInt32.self).bigEndian)
            let wire = base.loadUnaligned(fromByteOffset: 8, as: UInt16.self).bigEndian
            type = UInt8(truncatingIfNeeded: wire & 0x0F)
            flags = UInt8(truncatingIfNeeded: wire >> 1) & 0xF8
            return
        }
        var at = base
        let end = base + frame.count
        guard let number = Varint.read(&at, end), let bits = Varint.read(&at, end) else { return nil }
        self.number = number
        type = UInt8(truncatingIfNeeded: bits & 0x07)
        flags = UInt8(truncatingIfNeeded: bits & 0xF8)
    }
}
