import Glibc

/// What a person gives to an option and nobody shall see. `@FILE` means the file's first line, which no list of processes
/// shows. No message quotes any of it.
enum Secret {
    /// The value of an option; nil without it.
    static func value(_ arguments: Arguments, _ option: String) throws(Failure) -> String? {
        guard let text = arguments.value(option) else { return nil }
        return try lines(text, option).first ?? ""
    }

    /// A user name and a password, with a colon between them.
    static func pair(_ text: String, _ option: String) throws(Failure) -> (user: String, password: String) {
        guard let colon = text.firstIndex(of: ":"), colon > text.startIndex else {
            throw .usage("\(option) wants NAME:PASSWORD, or @FILE with such a line")
        }
        return (String(text[..<colon]), String(text[text.index(after: colon)...]))
    }

    /// The text itself, or the lines of the file that it names; empty ones are left out.
    static func lines(_ text: String, _ option: String) throws(Failure) -> [String] {
        guard text.hasPrefix("@") else { return [text] }
        let path = String(text.dropFirst())
        let (descriptor, _) = try File.openForReading(path)
        defer { close(descriptor) }
        return try read(descriptor, limit: 1 << 20, option).split(separator: "\n").map(String.init)
    }

    /// All that a descriptor gives, as text.
    static func read(_ descriptor: Int32, limit: Int, _ what: String) throws(Failure) -> String {
        var bytes: [UInt8] = []
        var buffer = [UInt8](repeating: 0, count: 4096)
        while bytes.count <= limit {
            let count = Glibc.read(descriptor, &buffer, buffer.count)
            if count == 0 { break }
            guard count > 0 else { throw .usage("cannot read what \(what) names: \(Output.reason)") }
            bytes += buffer[..<count]
        }
        guard bytes.count <= limit, let text = String(validating: bytes, as: UTF8.self) else {
            throw .usage("what \(what) names is too large, or no UTF-8")
        }
        return text
    }
}
