import CZlib

/// The decompressor of one direction of a version 3 connection: zlib on one raw deflate stream (RFC 1951) over all
/// compressed frames. It cannot be made anew while the peer's compressor lives.
///
/// What peers send is decompressed by zlib, not by the faster ISA-L that compresses: of the two it is the one whose
/// decompressor everybody attacks and distributions repair.
final class FrameInflater {
    let stream: UnsafeMutablePointer<z_stream>

    init?() {
        stream = .allocate(capacity: 1)
        stream.initialize(to: z_stream())
        // Memory is freed by `deinit`, which runs for what is made in vain too.
        guard inflateInit2_(stream, -15, ZLIB_VERSION, Int32(MemoryLayout<z_stream>.size)) == Z_OK else { return nil }
    }

    deinit {
        inflateEnd(stream)
        stream.deallocate()
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
    var expected: Int { Int(stream.pointee.avail_in) * 4 }

    /// Writes the next bytes.
    ///
    /// - Parameter room: more than 0 and less than 2^32.
    /// - Returns: the number of bytes written; if it is less than `room`, there are no more and the frame is used up.
    ///   Nil: the data is damaged, or the stream ends, which it may not.
    func inflate(_ to: UnsafeMutableRawPointer, _ room: Int) -> Int? {
        stream.pointee.next_out = to.assumingMemoryBound(to: UInt8.self)
        stream.pointee.avail_out = UInt32(truncatingIfNeeded: room)
        let status = CZlib.inflate(stream, Z_SYNC_FLUSH)
        let left = Int(stream.pointee.avail_out)
        // Z_BUF_ERROR: there was nothing left to do.
        guard status == Z_OK || status == Z_BUF_ERROR, left == 0 || stream.pointee.avail_in == 0 else { return nil }
        return room - left
    }
}
