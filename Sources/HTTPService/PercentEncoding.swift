/// Percent-encoding of paths (RFC 3986 §2.1).
public enum PercentEncoding {
    /// The bytes that a text stands for; nil if a percent sign is not followed by two digits.
    static func decode(_ text: some Collection<UInt8>) -> [UInt8]? {
        var result: [UInt8] = []
        result.reserveCapacity(text.count)
        var bytes = text.makeIterator()
        while let byte = bytes.next() {
            guard byte == UInt8(ascii: "%") else {
                result.append(byte)
                continue
            }
            guard let first = bytes.next().flatMap(HexDigit.value), let second = bytes.next().flatMap(HexDigit.value)
            else { return nil }
            result.append(first << 4 | second)
        }
        return result
    }

    /// A name as a segment of a path: everything but unreserved characters is encoded.
    public static func encode(_ bytes: some Collection<UInt8>) -> String {
        var result: [UInt8] = []
        result.reserveCapacity(bytes.count)
        for byte in bytes {
            switch byte {
            case UInt8(ascii: "a")...UInt8(ascii: "z"), UInt8(ascii: "A")...UInt8(ascii: "Z"),
                UInt8(ascii: "0")...UInt8(ascii: "9"), UInt8(ascii: "-"), UInt8(ascii: "."), UInt8(ascii: "_"),
                UInt8(ascii: "~"):
                result.append(byte)
            default: result += [UInt8(ascii: "%"), HexDigit.upper[Int(byte >> 4)], HexDigit.upper[Int(byte & 15)]]
            }
        }
        return String(decoding: result, as: UTF8.self)
    }
}
