import CZlib

/// A zlib compressor.
final class Deflater {
    let stream: UnsafeMutablePointer<z_stream>

    /// - Parameter windowBits: −15 raw, 31 gzip.
    init?(level: Int32, windowBits: Int32) {
        stream = .allocate(capacity: 1)
        stream.initialize(to: z_stream())
        let status = deflateInit2_(
            stream, level, Z_DEFLATED, windowBits, 8, Z_DEFAULT_STRATEGY, ZLIB_VERSION,
            Int32(MemoryLayout<z_stream>.size))
        guard status == Z_OK else {
            stream.deallocate()
            return nil
        }
    }

    deinit {
        deflateEnd(stream)
        stream.deallocate()
    }

    /// The most bytes that `size` bytes take with a sync flush behind them, trailer included.
    static func bound(_ size: Int) -> Int {
        size + size >> 10 + 32
    }
}
