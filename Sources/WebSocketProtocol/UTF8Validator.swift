/// Checks UTF-8 (RFC 3629) that comes in pieces, and finds a fault at the first byte that makes it certain.
struct UTF8Validator {
    /// Continuation bytes that the current character still needs.
    private var missing: UInt8 = 0
    /// What the next continuation byte may be: narrower behind E0, ED, F0 and F4.
    private var lower: UInt8 = 0x80
    private var upper: UInt8 = 0xBF

    /// No character is cut off at the end of what was consumed.
    var isComplete: Bool { missing == 0 }

    /// Whether a text is UTF-8 as a whole.
    static func isValid(_ bytes: UnsafeRawBufferPointer) -> Bool {
        var validator = UTF8Validator()
        return validator.consume(bytes) && validator.isComplete
    }

    /// Takes the next piece; false: no continuation can make it UTF-8.
    mutating func consume(_ bytes: UnsafeRawBufferPointer) -> Bool {
        guard let base = bytes.baseAddress else { return true }
        let count = bytes.count
        var index = 0
        while index < count {
            if missing == 0 {
                while count - index >= 8,
                    base.loadUnaligned(fromByteOffset: index, as: UInt64.self) & 0x8080_8080_8080_8080 == 0
                {
                    index += 8
                }
                guard index < count else { return true }
            }
            let byte = base.load(fromByteOffset: index, as: UInt8.self)
            index += 1
            if missing > 0 {
                guard byte >= lower, byte <= upper else { return false }
                missing -= 1
                lower = 0x80
                upper = 0xBF
            } else if byte >= 0x80 {
                guard start(byte) else { return false }
            }
        }
        return true
    }

    private mutating func start(_ byte: UInt8) -> Bool {
        switch byte {
        case 0xC2...0xDF: missing = 1
        case 0xE0...0xEF: missing = 2
        case 0xF0...0xF4: missing = 3
        default: return false
        }
        switch byte {
        case 0xE0: lower = 0xA0  // shorter forms exist
        case 0xED: upper = 0x9F  // surrogates
        case 0xF0: lower = 0x90  // shorter forms exist
        case 0xF4: upper = 0x8F  // above U+10FFFF
        default: break
        }
        return true
    }
}
