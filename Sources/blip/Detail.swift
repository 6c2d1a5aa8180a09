import CBLIP

/// What the library says about an error.
struct Detail {
    let domain: String
    let code: Int64
    /// On one line, fit for a terminal.
    let text: String

    /// Nil if there is no text.
    init?(_ error: OpaquePointer) {
        guard let message = Library.slice({ blip_error_message(error, $0) }), message.size > 0 else { return nil }
        text = Terminal.escape(message.string)
        domain = Library.slice { blip_error_domain(error, $0) }?.string ?? ""
        var code: Int64 = 0
        _ = blip_error_code(error, &code)
        self.code = code
    }

    /// The text without `verb subject: ` at its start, where the message around it names that subject anyway.
    ///
    /// A subject that is a name with its address in parentheses leaves the address.
    func text(without verb: String, of shown: String) -> String {
        guard text.hasPrefix(verb + " ") else { return text }
        let rest = text.dropFirst(verb.count + 1)
        guard let end = rest.indices.first(where: { rest[$0...].hasPrefix(": ") }) else { return text }
        let subject = rest[..<end]
        if subject.hasSuffix(")"), let open = subject.lastIndex(of: "(") {
            return String(subject[subject.index(after: open)...].dropLast() + rest[end...])
        }
        let names = shown.indices.contains { shown[$0...].hasPrefix(subject) }
        return names ? String(rest[end...].dropFirst(2)) : String(rest)
    }

    /// Whether the other side ended TLS with an alert.
    var isAlert: Bool {
        domain == "TLS" && text.indices.contains { text[$0...].hasPrefix("the peer refused") }
    }
}
