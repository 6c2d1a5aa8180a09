/// Keeps `user:password@` of URLs off screens and out of logs.
enum Credentials {
    /// The text without what stands before an "@" behind a "://": up to the last one before a "/", "?", "#", a quote or
    /// white space.
    static func removed(from text: String) -> String {
        var result: [UInt8] = []
        var rest = Array(text.utf8)[...]
        while let start = firstAuthority(in: rest) {
            result += rest[..<start]
            let end = rest[start...].firstIndex { endsAuthority($0) } ?? rest.endIndex
            let host = rest[start..<end].lastIndex(of: UInt8(ascii: "@")).map { $0 + 1 } ?? start
            result += rest[host..<end]
            rest = rest[end...]
        }
        return String(decoding: result + rest, as: UTF8.self)
    }

    /// Of a text that is no usable URL, where nobody knows how far the password goes: without all up to its last "@".
    static func removed(fromMalformed text: String) -> String {
        let bytes = Array(text.utf8)
        guard let last = bytes.lastIndex(of: UInt8(ascii: "@")) else { return text }
        let start = firstAuthority(in: bytes[...]).map { min($0, last) } ?? 0
        return String(decoding: bytes[..<start] + bytes[(last + 1)...], as: UTF8.self)
    }

    /// The index behind the next "://".
    private static func firstAuthority(in text: ArraySlice<UInt8>) -> Int? {
        text.indices.first { text[$0...].starts(with: "://".utf8) }.map { $0 + 3 }
    }

    private static func endsAuthority(_ byte: UInt8) -> Bool {
        byte <= UInt8(ascii: " ") || "/?#'\"".utf8.contains(byte)
    }
}
