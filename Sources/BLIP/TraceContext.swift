import WebSocketProtocol

/// The properties of W3C Trace Context, Level 2: how they are read and written.
enum TraceContext {
    static let parentKey: StaticString = "traceparent"
    static let stateKey: StaticString = "tracestate"

    /// The flag of a parent: the caller may have recorded the trace (§3.2.2.5).
    private static let sampled: UInt8 = 1
    /// The flag of a parent: the trace-id is random as a whole (§3.2.2.5).
    private static let random: UInt8 = 2

    /// Whether it is a traceparent that may be processed: of version 00, or of a later one as far as it is known (§3.2).
    static func isParent(_ text: UnsafeRawBufferPointer) -> Bool {
        guard text.count >= 55, text[2] == dash, text[35] == dash, text[52] == dash else { return false }
        for range in [0..<2, 3..<35, 36..<52, 53..<55] {
            guard text[range].allSatisfy(isHexDigit) else { return false }
        }
        guard text[3..<35].contains(where: { $0 != zero }), text[36..<52].contains(where: { $0 != zero }) else {
            return false
        }
        let version = (text[0], text[1])
        if version == (UInt8(ascii: "f"), UInt8(ascii: "f")) { return false }
        if version == (zero, zero) { return text.count == 55 }
        return text.count == 55 || text[55] == dash
    }

    /// Whether it is a tracestate (§3.3): up to 32 members, each key once.
    static func isState(_ text: UnsafeRawBufferPointer) -> Bool {
        var keys: [UnsafeRawBufferPointer] = []
        var start = 0
        while start <= text.count {
            let end = text[start...].firstIndex(of: comma) ?? text.count
            let member = trimmed(UnsafeRawBufferPointer(rebasing: text[start..<end]))
            start = end + 1
            if member.isEmpty { continue }
            guard keys.count < 32, let equals = member.firstIndex(of: UInt8(ascii: "=")) else { return false }
            let key = UnsafeRawBufferPointer(rebasing: member[..<equals])
            let value = member[(equals + 1)...]
            guard isKey(key), (1...256).contains(value.count), value.allSatisfy(isValueByte) else { return false }
            guard !keys.contains(where: { $0.elementsEqual(key) }) else { return false }
            keys.append(key)
        }
        return true
    }

    /// A parent with a new parent-id: of the same trace, in the one version that we write.
    static func child(of parent: UnsafeRawBufferPointer) -> [UInt8] {
        let flags = hexValue(parent[53]) << 4 | hexValue(parent[54])
        return [zero, zero, dash] + parent[3..<35] + [dash] + randomID(8) + [dash] + hex([flags & (sampled | random)])
    }

    /// A parent of a new trace.
    static func root(isSampled: Bool) -> [UInt8] {
        [zero, zero, dash] + randomID(16) + [dash] + randomID(8) + [dash] + hex([random | (isSampled ? sampled : 0)])
    }

    // MARK: Bytes

    private static let dash = UInt8(ascii: "-")
    private static let zero = UInt8(ascii: "0")
    private static let comma = UInt8(ascii: ",")

    /// So many random bytes, not all zero, in hexadecimal digits.
    private static func randomID(_ count: Int) -> [UInt8] {
        var bytes = Randomness.bytes(count)
        if bytes.allSatisfy({ $0 == 0 }) { bytes[count - 1] = 1 }
        return hex(bytes)
    }

    private static func hex(_ bytes: [UInt8]) -> [UInt8] {
        Array(Hexadecimal.encode(bytes).utf8)
    }

    private static func hexValue(_ digit: UInt8) -> UInt8 {
        digit <= UInt8(ascii: "9") ? digit &- zero : digit &- UInt8(ascii: "a") &+ 10
    }

    private static func isHexDigit(_ byte: UInt8) -> Bool {
        isDigit(byte) || (UInt8(ascii: "a")...UInt8(ascii: "f")).contains(byte)
    }

    private static func isDigit(_ byte: UInt8) -> Bool { (zero...UInt8(ascii: "9")).contains(byte) }

    private static func isLetter(_ byte: UInt8) -> Bool { (UInt8(ascii: "a")...UInt8(ascii: "z")).contains(byte) }

    private static func isKey(_ key: UnsafeRawBufferPointer) -> Bool {
        guard (1...256).contains(key.count), isLetter(key[0]) || isDigit(key[0]) else { return false }
        return key.allSatisfy { byte in
            switch byte {
            case UInt8(ascii: "_"), UInt8(ascii: "-"), UInt8(ascii: "*"), UInt8(ascii: "/"), UInt8(ascii: "@"): true
            default: isLetter(byte) || isDigit(byte)
            }
        }
    }

    /// Spaces at the end were trimmed before.
    private static func isValueByte(_ byte: UInt8) -> Bool {
        (0x20...0x7E).contains(byte) && byte != comma && byte != UInt8(ascii: "=")
    }

    private static func trimmed(_ text: UnsafeRawBufferPointer) -> UnsafeRawBufferPointer {
        func isSpace(_ byte: UInt8) -> Bool { byte == 0x20 || byte == 0x09 }
        var start = 0
        var end = text.count
        while start < end, isSpace(text[start]) { start += 1 }
        while end > start, isSpace(text[end - 1]) { end -= 1 }
        return UnsafeRawBufferPointer(rebasing: text[start..<end])
    }
}
