/// The alphabets of deflate (RFC 1951 §3.2.5).
enum DeflateCode {
    static let literals = 286
    static let distances = 30
    static let endOfBlock = 256

    /// The code of a match length from 3 to 258, less 257.
    @inline(__always)
    static func lengthCode(_ length: Int) -> Int {
        let value = UInt32(truncatingIfNeeded: length &- 3)
        if value < 8 { return Int(value) }
        if value == 255 { return 28 }
        let bits = 29 &- UInt32(truncatingIfNeeded: value.leadingZeroBitCount)
        return Int(4 &* bits &+ value &>> bits)
    }

    /// The number of extra bits of a length code.
    @inline(__always)
    static func lengthExtra(_ code: Int) -> UInt64 {
        code < 8 || code == 28 ? 0 : UInt64(truncatingIfNeeded: code &>> 2 &- 1)
    }

    /// The code of a distance less 1, from 0 to 32767.
    @inline(__always)
    static func distanceCode(_ distance: Int) -> Int {
        let value = UInt32(truncatingIfNeeded: distance)
        if value < 4 { return Int(value) }
        let bits = 30 &- UInt32(truncatingIfNeeded: value.leadingZeroBitCount)
        return Int(2 &* bits &+ value &>> bits)
    }

    /// The number of extra bits of a distance code.
    @inline(__always)
    static func distanceExtra(_ code: Int) -> UInt64 {
        code < 4 ? 0 : UInt64(truncatingIfNeeded: code &>> 1 &- 1)
    }
}
