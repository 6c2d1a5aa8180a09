/// Reads IP addresses in text form, without a resolver.
enum IPLiteral {
    /// Four decimal numbers of 0 to 255 without leading zeros.
    static func isIPv4(_ text: some Collection<UInt8>) -> Bool {
        let parts = text.split(separator: UInt8(ascii: "."), omittingEmptySubsequences: false)
        guard parts.count == 4 else { return false }
        return parts.allSatisfy { part in
            guard part.count >= 1, part.count <= 3, part.allSatisfy({ HTTPSyntax.isDigit($0) }) else { return false }
            if part.count > 1, part.first == UInt8(ascii: "0") { return false }
            return part.reduce(0) { $0 * 10 + Int($1 & 0x0F) } <= 255
        }
    }

    /// An address in the forms of RFC 4291 §2.2: eight groups, one run of zeros left out, an IPv4 address at the end.
    static func isIPv6(_ text: some Collection<UInt8>) -> Bool {
        let bytes = Array(text)
        var groups = 0
        var isShortened = false
        var index = 0
        if bytes.starts(with: [0x3A, 0x3A]) {
            isShortened = true
            index = 2
            if bytes.count == 2 { return true }
        }
        while index < bytes.count {
            let start = index
            while index < bytes.count, bytes[index] != UInt8(ascii: ":") { index += 1 }
            let group = bytes[start..<index]
            if group.contains(UInt8(ascii: ".")) {
                guard index == bytes.count, isIPv4(group) else { return false }
                groups += 2
                break
            }
            guard (1...4).contains(group.count), group.allSatisfy({ isHexDigit($0) }) else { return false }
            groups += 1
            guard index < bytes.count else { break }
            index += 1
            guard index < bytes.count else { return false }
            if bytes[index] == UInt8(ascii: ":") {
                guard !isShortened else { return false }
                isShortened = true
                index += 1
            }
        }
        return isShortened ? groups <= 7 : groups == 8
    }

    static func isHexDigit(_ byte: UInt8) -> Bool { hexValue(byte) != nil }

    static func hexValue(_ byte: UInt8) -> UInt8? {
        switch byte {
        case UInt8(ascii: "0")...UInt8(ascii: "9"): byte & 0x0F
        case UInt8(ascii: "A")...UInt8(ascii: "F"), UInt8(ascii: "a")...UInt8(ascii: "f"): (byte & 0x0F) + 9
        default: nil
        }
    }

    /// The address in network byte order: 4 or 16 bytes; nil if the text is none. A zone ("%eth0") is left out.
    static func bytes(_ text: String) -> [UInt8]? {
        let digits = Array(text.utf8.prefix { $0 != UInt8(ascii: "%") })
        if isIPv4(digits) { return numbers(digits) }
        guard isIPv6(digits) else { return nil }
        var halves: [[UInt8]] = [[]]
        var index = 0
        while index < digits.count {
            let start = index
            while index < digits.count, digits[index] != UInt8(ascii: ":") { index += 1 }
            let group = digits[start..<index]
            if group.contains(UInt8(ascii: ".")) {
                halves[halves.count - 1] += numbers(group)
            } else if !group.isEmpty {
                let value = group.reduce(UInt16(0)) { $0 << 4 | UInt16(hexValue($1) ?? 0) }
                halves[halves.count - 1] += [UInt8(value >> 8), UInt8(value & 0xFF)]
            }
            if digits[index...].starts(with: [0x3A, 0x3A]) {
                halves.append([])
                index += 1
            }
            index += 1
        }
        let head = halves.first ?? []
        let tail = halves.count > 1 ? halves[1] : []
        guard head.count + tail.count <= 16 else { return nil }
        return head + [UInt8](repeating: 0, count: 16 - head.count - tail.count) + tail
    }

    private static func numbers(_ text: some Collection<UInt8>) -> [UInt8] {
        text.split(separator: UInt8(ascii: ".")).map { part in part.reduce(0) { $0 &* 10 &+ ($1 & 0x0F) } }
    }
}
