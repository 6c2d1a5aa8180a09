#if canImport(Glibc)
    import Glibc
#elseif canImport(Musl)
    import Musl
#endif

/// What encoded properties must be, and the abbreviations of versions 1 and 2.
enum PropertyRules {
    /// True if `encoded` is empty, or texts that each end with NUL, an even number of them, in UTF-8.
    @inline(__always)
    static func areValid(_ encoded: UnsafeRawBufferPointer) -> Bool {
        guard let base = encoded.baseAddress, encoded.count > 0 else { return true }
        let count = encoded.count
        guard base.load(fromByteOffset: count &- 1, as: UInt8.self) == 0 else { return false }
        var zeros = 0
        var high: UInt64 = 0
        var at = 0
        let low7: UInt64 = 0x7F7F_7F7F_7F7F_7F7F
        while at &+ 8 <= count {
            let word = base.loadUnaligned(fromByteOffset: at, as: UInt64.self)
            high |= word
            // The top bit of each byte that is zero, exactly.
            zeros &+= (~(((word & low7) &+ low7) | word | low7)).nonzeroBitCount
            at &+= 8
        }
        while at < count {
            let byte = base.load(fromByteOffset: at, as: UInt8.self)
            high |= UInt64(byte)
            if byte == 0 { zeros &+= 1 }
            at &+= 1
        }
        guard zeros & 1 == 0 else { return false }
        return high & ~low7 == 0 || isUTF8(encoded)
    }

    /// True if `bytes` are well-formed UTF-8 (RFC 3629 §4).
    @inline(never)
    static func isUTF8(_ bytes: UnsafeRawBufferPointer) -> Bool {
        guard let base = bytes.baseAddress else { return true }
        let count = bytes.count
        var at = 0
        while at < count {
            let lead = base.load(fromByteOffset: at, as: UInt8.self)
            if lead < 0x80 {
                at &+= 1
                continue
            }
            // The number of bytes that follow, and the range of the first of them.
            let more: Int
            var low: UInt8 = 0x80
            var high: UInt8 = 0xBF
            switch lead {
            case 0xC2...0xDF: more = 1
            case 0xE0:
                more = 2
                low = 0xA0
            case 0xED:
                more = 2
                high = 0x9F
            case 0xE1...0xEF: more = 2
            case 0xF0:
                more = 3
                low = 0x90
            case 0xF1...0xF3: more = 3
            case 0xF4:
                more = 3
                high = 0x8F
            default: return false
            }
            guard more < count &- at else { return false }
            let second = base.load(fromByteOffset: at &+ 1, as: UInt8.self)
            guard second >= low, second <= high else { return false }
            var index = 2
            while index <= more {
                guard base.load(fromByteOffset: at &+ index, as: UInt8.self) & 0xC0 == 0x80 else { return false }
                index &+= 1
            }
            at &+= more &+ 1
        }
        return true
    }

    /// The texts that stand for single control characters, from 1 on (BLIP 2 §"Message Properties").
    private static let version2: [StaticString] = [
        "Profile", "Error-Code", "Error-Domain", "Content-Type", "application/json", "application/octet-stream",
        "text/plain; charset=UTF-8", "text/xml", "Accept", "Cache-Control", "must-revalidate", "If-Match",
        "If-None-Match", "Location",
    ]

    private static let version1: [StaticString] = [
        "Content-Type", "Profile", "application/octet-stream", "text/plain; charset=UTF-8", "text/xml", "text/yaml",
        "Channel", "Error-Code", "Error-Domain",
    ]

    private static func table(_ version: ProtocolVersion) -> [StaticString] {
        switch version {
        case .v1: version1
        case .v2: version2
        case .v3: []
        }
    }

    /// Appends the properties with abbreviations in place of the texts that have one.
    ///
    /// - Returns: false if there is no memory.
    static func abbreviate(
        _ encoded: UnsafeRawBufferPointer, _ version: ProtocolVersion, into output: inout Bytes
    ) -> Bool {
        let table = table(version)
        var scanner = PropertyScanner(encoded)
        while let text = scanner.text() {
            var code: UInt8 = 0
            if let start = text.baseAddress, text.count > 1 {
                for (index, known) in table.enumerated()
                where known.utf8CodeUnitCount == text.count && memcmp(known.utf8Start, start, text.count) == 0 {
                    code = UInt8(truncatingIfNeeded: index + 1)
                    break
                }
            }
            guard code == 0 ? output.append(text) : output.append(code), output.append(0) else { return false }
        }
        return true
    }

    /// True if a text of these valid properties is a single control character.
    static func hasAbbreviation(_ encoded: UnsafeRawBufferPointer) -> Bool {
        var scanner = PropertyScanner(encoded)
        while let text = scanner.text() {
            if text.count == 1, text[0] < 0x20 { return true }
        }
        return false
    }

    /// Appends valid properties with full texts in place of abbreviations.
    ///
    /// - Returns: false if an abbreviation is not defined in this version, or there is no memory.
    static func expand(
        _ encoded: UnsafeRawBufferPointer, _ version: ProtocolVersion, into output: inout Bytes
    ) -> Bool {
        let table = table(version)
        var scanner = PropertyScanner(encoded)
        while let text = scanner.text() {
            if text.count == 1, text[0] < 0x20 {
                let code = Int(text[0])
                guard code >= 1, code <= table.count else { return false }
                let full = table[code - 1]
                guard output.append(full.utf8Start, full.utf8CodeUnitCount) else { return false }
            } else {
                guard output.append(text) else { return false }
            }
            guard output.append(0) else { return false }
        }
        return true
    }
}
