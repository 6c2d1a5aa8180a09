import CZlib

/// A zlib decompressor.
final class Inflater {
    let stream: UnsafeMutablePointer<z_stream>
    /// Gzip only: the end of the compressed data was reached.
    var isAtEnd = false
    /// Any input was given since the start.
    var hasInput = false

    /// - Parameter windowBits: −15 raw, 47 gzip or zlib by its header.
    init?(windowBits: Int32) {
        stream = .allocate(capacity: 1)
        stream.initialize(to: z_stream())
        // Memory is freed by `deinit`, which runs for what is made in vain too.
        guard inflateInit2_(stream, windowBits, ZLIB_VERSION, Int32(MemoryLayout<z_stream>.size)) == Z_OK else {
            return nil
        }
    }

    deinit {
        inflateEnd(stream)
        stream.deallocate()
    }
}
