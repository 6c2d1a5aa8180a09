/// Writes JSON (RFC 8259) on one line. Values come in the order they are given.
struct JSONWriter {
    private(set) var text = ""
    private var needsComma = false

    mutating func object(_ fill: (inout JSONWriter) -> Void) {
        nest("{", "}", fill)
    }

    mutating func objectField(_ name: String, _ fill: (inout JSONWriter) -> Void) {
        key(name)
        nest("{", "}", fill)
    }

    mutating func arrayField(_ name: String, _ values: [String]) {
        key(name)
        nest("[", "]") { json in
            for value in values {
                json.separate()
                json.quote(value)
                json.needsComma = true
            }
        }
    }

    mutating func field(_ name: String, _ value: String) {
        key(name)
        quote(value)
        needsComma = true
    }

    mutating func field(_ name: String, _ value: Bool) {
        raw(name, value ? "true" : "false")
    }

    mutating func field(_ name: String, _ value: some FixedWidthInteger) {
        raw(name, String(value))
    }

    mutating func field(_ name: String, _ value: Double, decimals: Int) {
        raw(name, value.isFinite ? Number.fixed(value, decimals) : "null")
    }

    private mutating func raw(_ name: String, _ value: String) {
        key(name)
        text += value
        needsComma = true
    }

    private mutating func nest(_ open: String, _ close: String, _ fill: (inout JSONWriter) -> Void) {
        if !text.hasSuffix(":") { separate() }
        text += open
        needsComma = false
        fill(&self)
        text += close
        needsComma = true
    }

    private mutating func key(_ name: String) {
        separate()
        quote(name)
        text += ":"
        needsComma = false
    }

    private mutating func separate() {
        if needsComma { text += "," }
        needsComma = false
    }

    private mutating func quote(_ value: String) {
        text += "\""
        for scalar in value.unicodeScalars {
            switch scalar {
            case "\"": text += "\\\""
            case "\\": text += "\\\\"
            case "\n": text += "\\n"
            case "\r": text += "\\r"
            case "\t": text += "\\t"
            default:
                // Beyond what JSON asks for: what could drive or confuse the terminal that this may end on.
                if scalar.value < 0x20 || Terminal.isUnsafe(scalar) {
                    text += "\\u" + Terminal.hex(scalar.value, digits: 4)
                } else {
                    text.unicodeScalars.append(scalar)
                }
            }
        }
        text += "\""
    }
}
