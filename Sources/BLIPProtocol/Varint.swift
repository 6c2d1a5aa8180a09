/// Unsigned LEB128, at most ten bytes and 64 bits (BLIP §2).
enum Varint {
    /// The most bytes of one.
    static let maximumSize = 10

    /// Reads one and moves `at` behind it.
    ///
    /// - Returns: nil if it is cut off by `end` or above 64 bits.
    @inline(__always)
    static func read(_ at: inout UnsafeRawPointer, _ end: UnsafeRawPointer) -> UInt64? {
        guard at < end else { return nil }
        let first = at.load(as: UInt8.self)
        if first < 0x80 {
            at += 1
            return UInt64(first)
        }
        return readLong(&at, end)
    }

    @inline(never)
    private static func readLong(_ at: inout UnsafeRawPointer, _ end: UnsafeRawPointer) -> UInt64? {
        var value: UInt64 = 0
        var shift: UInt64 = 0
        var next = at
        while next < end, shift < 70 {
            let byte = next.load(as: UInt8.self)
            next += 1
            let bits = UInt64(byte & 0x7F)
            if shift == 63 && bits > 1 { return nil }
            value |= bits &<< shift
            if byte < 0x80 {
                at = next
                return value
            }
            shift &+= 7
        }
        return nil
    }

    /// Writes `value` and returns its size; there must be room for it.
    @inline(__always)
    static func write(_ value: UInt64, to at: UnsafeMutableRawPointer) -> Int {
        var rest = value
        var size = 0
        while rest >= 0x80 {
            at.storeBytes(of: UInt8(truncatingIfNeeded: rest) | 0x80, toByteOffset: size, as: UInt8.self)
            rest &>>= 7
            size &+= 1
        }
        at.storeBytes(of: UInt8(truncatingIfNeeded: rest), toByteOffset: size, as: UInt8.self)
        return size &+ 1
    }

    /// The bytes that `value` takes.
    @inline(__always)
    static func size(_ value: UInt64) -> Int {
        max(1, (70 &- value.leadingZeroBitCount) / 7)
    }
}
