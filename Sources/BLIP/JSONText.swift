/// Builds a JSON text (RFC 8259).
struct JSONText {
    private(set) var text = ""
    private var needsComma = false

    mutating func object(_ key: String? = nil, _ body: (inout JSONText) -> Void) { nest(key, "{", "}", body) }
    mutating func array(_ key: String? = nil, _ body: (inout JSONText) -> Void) { nest(key, "[", "]", body) }

    private mutating func nest(_ key: String?, _ open: String, _ close: String, _ body: (inout JSONText) -> Void) {
        begin(key)
        text += open
        needsComma = false
        body(&self)
        text += close
        needsComma = true
    }

    private mutating func begin(_ key: String?) {
        if needsComma { text += "," }
        needsComma = true
        guard let key else { return }
        quote(key)
        text += ":"
    }

    mutating func value(_ key: String, _ string: String) {
        begin(key)
        quote(string)
    }

    mutating func value(_ key: String, _ number: some BinaryInteger) {
        begin(key)
        text += "\(number)"
    }

    mutating func value(_ key: String, _ flag: Bool) {
        begin(key)
        text += flag ? "true" : "false"
    }

    /// An entry of an array.
    mutating func item(_ string: String) {
        begin(nil)
        quote(string)
    }

    mutating func item(_ number: some BinaryInteger) {
        begin(nil)
        text += "\(number)"
    }

    mutating func null(_ key: String) {
        begin(key)
        text += "null"
    }

    /// What was built by another.
    mutating func raw(_ key: String, _ json: String) {
        begin(key)
        text += json
    }

    /// An entry of an array that was built by another.
    mutating func rawItem(_ json: String) {
        begin(nil)
        text += json
    }

    private mutating func quote(_ string: String) {
        text += "\""
        for scalar in string.unicodeScalars {
            switch scalar {
            case "\"": text += "\\\""
            case "\\": text += "\\\\"
            default:
                if scalar.value < 0x20 {
                    let digits = String(scalar.value, radix: 16)
                    text += "\\u" + String(repeating: "0", count: 4 - digits.utf8.count) + digits
                } else {
                    text.unicodeScalars.append(scalar)
                }
            }
        }
        text += "\""
    }
}
