import CISAL

#if canImport(Glibc)
    import Glibc
#elseif canImport(Musl)
    import Musl
#endif

/// The decompressor of one direction of a version 3 connection: ISA-L on one raw deflate stream (RFC 1951) over all
/// compressed frames. It cannot be made anew while the peer's compressor lives.
final class FrameInflater {
    private let stream: UnsafeMutablePointer<inflate_state>

    init?() {
        guard let memory = malloc(MemoryLayout<inflate_state>.size) else { return nil }
        stream = memory.bindMemory(to: inflate_state.self, capacity: 1)
        isal_inflate_init(stream)
    }

    deinit {
        free(stream)
    }

    /// Gives the compressed bytes of the next frame with the trailer of its flush. They must stay until `inflate` has
    /// returned less than it was asked for.
    ///
    /// - Parameter count: less than 2^32.
    func give(_ bytes: UnsafeMutableRawPointer, _ count: Int) {
        stream.pointee.next_in = bytes.assumingMemoryBound(to: UInt8.self)
        stream.pointee.avail_in = UInt32(truncatingIfNeeded: count)
    }

    /// About as many bytes as `inflate` will still write.
    var expected: Int {
        let decoded = Int(stream.pointee.tmp_out_valid) - Int(stream.pointee.tmp_out_processed)
        return max(0, decoded) + Int(stream.pointee.avail_in) * 4
    }

    /// Writes the next bytes.
    ///
    /// - Parameter room: more than 0 and less than 2^32.
    /// - Returns: the number of bytes written; if it is less than `room`, there are no more and the frame is used up.
    ///   Nil: the data is damaged, or the stream ends, which it may not.
    func inflate(_ to: UnsafeMutableRawPointer, _ room: Int) -> Int? {
        stream.pointee.next_out = to.assumingMemoryBound(to: UInt8.self)
        stream.pointee.avail_out = UInt32(truncatingIfNeeded: room)
        let status = isal_inflate(stream)
        let left = Int(stream.pointee.avail_out)
        guard status == ISAL_DECOMP_OK, left == 0 || stream.pointee.avail_in == 0,
            stream.pointee.block_state != ISAL_BLOCK_INPUT_DONE, stream.pointee.block_state != ISAL_BLOCK_FINISH
        else { return nil }
        return room - left
    }
}
