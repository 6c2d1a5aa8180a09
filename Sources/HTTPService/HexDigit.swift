/// Hexadecimal digits, as chunk sizes and percent-encoding have them.
enum HexDigit {
    static func value(_ byte: UInt8) -> UInt8? {
        switch byte {
        case UInt8(ascii: "0")...UInt8(ascii: "9"): byte - UInt8(ascii: "0")
        case UInt8(ascii: "a")...UInt8(ascii: "f"): byte - UInt8(ascii: "a") + 10
        case UInt8(ascii: "A")...UInt8(ascii: "F"): byte - UInt8(ascii: "A") + 10
        default: nil
        }
    }

    static let upper = Array("0123456789ABCDEF".utf8)
    static let lower = Array("0123456789abcdef".utf8)

    /// A number in hexadecimal, without leading zeros.
    static func text(_ value: UInt64) -> String { String(value, radix: 16) }
}
