import Glibc

/// What concerns a person's screen: is there one, how wide is it, and what may be shown on it.
enum Terminal {
    static func isTerminal(_ descriptor: Int32) -> Bool {
        isatty(descriptor) == 1
    }

    static func width(_ descriptor: Int32) -> Int {
        var size = winsize()
        let known = ioctl(descriptor, UInt(TIOCGWINSZ), &size) == 0 && size.ws_col > 0
        return known ? Int(size.ws_col) : 80
    }

    /// Text on one line that cannot drive a terminal: control characters and the like are shown as escapes.
    static func escape(_ text: String) -> String {
        var shown = ""
        for scalar in text.unicodeScalars {
            append(scalar, keepingLines: false, to: &shown)
        }
        return shown
    }

    static func quote(_ text: String) -> String {
        "'\(escape(text))'"
    }

    /// Appends a character, or an escape where it would move the cursor, change colours, or turn the writing around.
    static func append(_ scalar: Unicode.Scalar, keepingLines: Bool, to text: inout String) {
        switch scalar.value {
        case 0x0A, 0x09:
            if keepingLines {
                text.unicodeScalars.append(scalar)
            } else {
                text += scalar.value == 0x0A ? "\\n" : "\\t"
            }
        case 0x0D:
            text += "\\r"
        case 0..<0x20, 0x7F..<0xA0:
            text += "\\x" + hex(scalar.value, digits: 2)
        case _ where isUnsafe(scalar):
            text += "\\u{" + hex(scalar.value, digits: 4) + "}"
        default:
            text.unicodeScalars.append(scalar)
        }
    }

    /// Beyond the C0 controls: what deletes, drives a terminal by one character, or turns the direction of writing.
    static func isUnsafe(_ scalar: Unicode.Scalar) -> Bool {
        switch scalar.value {
        case 0x7F..<0xA0, 0x200E, 0x200F, 0x2028...0x202E, 0x2066...0x2069, 0xFEFF: true
        default: false
        }
    }

    static func hex(_ value: UInt32, digits: Int) -> String {
        let text = String(value, radix: 16)
        return String(repeating: "0", count: max(0, digits - text.utf8.count)) + text
    }
}
