extension Engine {
    /// Bytes that `writeFarewell` needs at most.
    public static let farewellSize = 20

    /// Writes the frame that says "Bye" without waiting for an answer, for a connection of version 1 that ends now
    /// (BLIP 1 §"Closing"): to the peer the end of the stream behind it is none of a broken connection.
    ///
    /// To be called after `takeAll`, as the last frame.
    /// - Parameter buffer: at least `farewellSize` bytes.
    /// - Returns: how many bytes were written; 0 if there is no number left for it, or in other versions.
    public func writeFarewell(into buffer: UnsafeMutableRawBufferPointer) -> Int {
        let number = state.pointee.nextNumber
        guard version == .v1, number <= UInt64(UInt32.max), buffer.count >= Self.farewellSize,
            let base = buffer.baseAddress
        else { return 0 }
        state.pointee.nextNumber = number + 1
        // 02: "Profile".
        let payload: StaticString = "\u{0}\u{6}\u{2}\u{0}Bye\u{0}"
        (base + Self.v1HeaderSize).copyMemory(from: payload.utf8Start, byteCount: payload.utf8CodeUnitCount)
        let flags: MessageFlags = [.meta, .noReply]
        writeHeader(base, number, flags.rawValue, Self.farewellSize)
        state.pointee.counters.framesSent &+= 1
        return Self.farewellSize
    }
}
