import CISAL

/// The running checksum of version 3: CRC-32 of zlib and IEEE 802.3, over a connection's message bytes (BLIP 3 §3).
enum Checksum {
    /// The checksum after `count` more bytes.
    @inline(__always)
    static func update(_ checksum: UInt32, _ bytes: UnsafeRawPointer, _ count: Int) -> UInt32 {
        guard count > 0 else { return checksum }
        return crc32_gzip_refl(checksum, bytes.assumingMemoryBound(to: UInt8.self), UInt64(count))
    }
}
