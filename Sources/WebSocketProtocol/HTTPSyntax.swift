/// Character classes and small readers of RFC 9110 §5.6 and RFC 9112.
enum HTTPSyntax {
    /// tchar of RFC 9110 §5.6.2: what methods, header names and subprotocols are made of.
    static func isToken(_ byte: UInt8) -> Bool {
        switch byte {
        case UInt8(ascii: "0")...UInt8(ascii: "9"), UInt8(ascii: "A")...UInt8(ascii: "Z"),
            UInt8(ascii: "a")...UInt8(ascii: "z"), UInt8(ascii: "!"), UInt8(ascii: "#"), UInt8(ascii: "$"),
            UInt8(ascii: "%"), UInt8(ascii: "&"), UInt8(ascii: "'"), UInt8(ascii: "*"), UInt8(ascii: "+"),
            UInt8(ascii: "-"), UInt8(ascii: "."), UInt8(ascii: "^"), UInt8(ascii: "_"), UInt8(ascii: "`"),
            UInt8(ascii: "|"), UInt8(ascii: "~"):
            true
        default: false
        }
    }

    /// A token: one tchar at least.
    static func isToken(_ text: some Collection<UInt8>) -> Bool {
        !text.isEmpty && text.allSatisfy { isToken($0) }
    }

    /// What may stand in a header value: all but control characters, tab excepted.
    static func isValue(_ byte: UInt8) -> Bool { (byte >= 0x20 && byte != 0x7F) || byte == 0x09 }

    static func isDigit(_ byte: UInt8) -> Bool { byte >= 0x30 && byte <= 0x39 }

    static func isSpace(_ byte: UInt8) -> Bool { byte == 0x20 || byte == 0x09 }

    static func lowercased(_ byte: UInt8) -> UInt8 {
        byte >= UInt8(ascii: "A") && byte <= UInt8(ascii: "Z") ? byte | 0x20 : byte
    }

    /// Equality but for the case of ASCII letters.
    static func equal(_ a: String, _ b: String) -> Bool {
        a.utf8.elementsEqual(b.utf8) { lowercased($0) == lowercased($1) }
    }

    /// Equality of bytes; String's own would take canonically equivalent texts for equal.
    static func identical(_ a: String, _ b: String) -> Bool { a.utf8.elementsEqual(b.utf8) }

    /// `bytes` without spaces and tabs at its ends.
    static func trimmed(_ bytes: UnsafeRawBufferPointer) -> UnsafeRawBufferPointer {
        var start = 0
        var end = bytes.count
        while start < end, isSpace(bytes[start]) { start += 1 }
        while end > start, isSpace(bytes[end - 1]) { end -= 1 }
        return part(bytes, start, end)
    }

    /// The bytes from `start` to before `end`, which the caller knows to lie inside.
    static func part(_ bytes: UnsafeRawBufferPointer, _ start: Int, _ end: Int) -> UnsafeRawBufferPointer {
        guard let base = bytes.baseAddress, start >= 0, start <= end, end <= bytes.count else {
            return UnsafeRawBufferPointer(start: nil, count: 0)
        }
        return UnsafeRawBufferPointer(start: base + start, count: end - start)
    }

    /// The text of header bytes: UTF-8, or ISO 8859-1 if they are not (RFC 9110 §5.5).
    static func text(_ bytes: UnsafeRawBufferPointer) -> String {
        if UTF8Validator.isValid(bytes) { return String(decoding: bytes, as: UTF8.self) }
        return String(decoding: bytes.map { UInt16($0) }, as: UTF16.self)
    }

    /// A decimal number without sign, at most 18 digits.
    static func number(_ text: String) -> UInt64? {
        guard !text.isEmpty, text.utf8.count <= 18, text.utf8.allSatisfy({ isDigit($0) }) else { return nil }
        return text.utf8.reduce(0) { $0 * 10 + UInt64($1 & 0x0F) }
    }

    /// A text of a peer for an error message: at most 100 characters, none of which could be mistaken for a line end.
    static func quoted(_ text: String) -> String {
        var result = "\""
        var count = 0
        for scalar in text.unicodeScalars {
            count += 1
            if count > 100 {
                result += "..."
                break
            }
            let value = scalar.value
            if value < 0x20 || (value >= 0x7F && value < 0xA0) || value == 0x2028 || value == 0x2029 {
                result += "?"
            } else {
                result.unicodeScalars.append(scalar)
            }
        }
        return result + "\""
    }
}
