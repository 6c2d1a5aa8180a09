/// Makes a body fit for a terminal as it arrives: lines stay, what could drive the terminal becomes visible escapes.
///
/// A character may be cut anywhere; its first bytes wait here for the others.
struct TerminalFilter {
    private var pending: [UInt8] = []

    mutating func feed(_ bytes: UnsafeRawBufferPointer, atEnd: Bool) -> String {
        var text = ""
        text.reserveCapacity(bytes.count)
        pending.append(contentsOf: bytes)
        var position = 0
        while position < pending.count {
            let byte = pending[position]
            if (0x20..<0x7F).contains(byte) || byte == 0x0A || byte == 0x09 {
                text.unicodeScalars.append(Unicode.Scalar(byte))
                position += 1
                continue
            }
            let rest = pending[position...]
            let length = Self.length(of: rest)
            if length > rest.count && !atEnd && Self.isPrefix(rest) { break }
            if length <= rest.count, let scalar = Self.scalar(rest.prefix(length)) {
                Terminal.append(scalar, keepingLines: true, to: &text)
                position += length
            } else {
                text += "\\x" + Terminal.hex(UInt32(byte), digits: 2)
                position += 1
            }
        }
        pending.removeFirst(position)
        return text
    }

    private static func length(of bytes: ArraySlice<UInt8>) -> Int {
        switch bytes.first ?? 0 {
        case 0..<0x80: 1
        case 0xC2..<0xE0: 2
        case 0xE0..<0xF0: 3
        case 0xF0..<0xF5: 4
        default: 1
        }
    }

    private static func isPrefix(_ bytes: ArraySlice<UInt8>) -> Bool {
        bytes.dropFirst().allSatisfy { $0 & 0xC0 == 0x80 }
    }

    private static func scalar(_ bytes: ArraySlice<UInt8>) -> Unicode.Scalar? {
        guard let text = String(validating: bytes, as: UTF8.self) else { return nil }
        return text.unicodeScalars.first
    }
}
