import CZlib

/// A peer's compressor: zlib, whatever the library uses.
final class ZlibPeer {
    private let z: UnsafeMutablePointer<z_stream>

    /// - Parameter windowBits: −15 raw, 31 gzip.
    init(level: Int32, windowBits: Int32 = -15) {
        z = .allocate(capacity: 1)
        z.initialize(to: z_stream())
        deflateInit2_(
            z, level, Z_DEFLATED, windowBits, 8, Z_DEFAULT_STRATEGY, ZLIB_VERSION,
            Int32(MemoryLayout<z_stream>.size))
    }

    deinit {
        deflateEnd(z)
        z.deallocate()
    }

    /// A frame with its trailer, or a whole stream.
    ///
    /// - Parameters:
    ///   - flushes: what to do between parts, before the end.
    ///   - end: what to do at the end.
    func frame(_ plain: [UInt8], flushes: [Int32] = [], end: Int32 = Z_SYNC_FLUSH) -> [UInt8] {
        var input = plain
        var output = [UInt8](repeating: 0, count: plain.count + plain.count / 100 + 1000 + 20 * flushes.count)
        let size = input.withUnsafeMutableBufferPointer { input in
            output.withUnsafeMutableBufferPointer { output -> Int in
                z.pointee.next_out = output.baseAddress
                z.pointee.avail_out = uInt(output.count)
                z.pointee.next_in = input.baseAddress
                let part = input.count / (flushes.count + 1)
                for flush in flushes {
                    z.pointee.avail_in = uInt(part)
                    deflate(z, flush)
                }
                z.pointee.avail_in = uInt(input.count - part * flushes.count)
                deflate(z, end)
                return output.count - Int(z.pointee.avail_out)
            }
        }
        return Array(output.prefix(size))
    }
}
