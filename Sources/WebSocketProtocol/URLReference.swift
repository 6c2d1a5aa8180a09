/// A reference to a URL, relative or not, as a Location header has it (RFC 3986 §4).
enum URLReference {
    /// What a reference means at a place; without a fragment, because WebSocket URLs have none (RFC 9110 §10.2.2 lets a
    /// Location have one).
    ///
    /// - Parameter base: where it was found.
    /// - Returns: the text of a URL, which is not checked yet.
    static func resolve(_ reference: String, at base: WebSocketURL) -> String {
        let whole = Array(reference.utf8)
        let bytes = Array(whole.prefix { $0 != UInt8(ascii: "#") })
        if hasScheme(bytes) { return String(decoding: withoutDots(whole: bytes), as: UTF8.self) }
        let scheme = base.scheme.rawValue
        if bytes.starts(with: "//".utf8) {
            return String(decoding: withoutDots(whole: Array((scheme + ":").utf8) + bytes), as: UTF8.self)
        }
        let root = Array("\(scheme)://\(base.authority)".utf8)
        let path = Array(base.target.utf8.prefix { $0 != UInt8(ascii: "?") })
        var rest: [UInt8]
        if bytes.isEmpty {
            rest = Array(base.target.utf8)
        } else if bytes[0] == UInt8(ascii: "?") {
            rest = path + bytes
        } else {
            let queryStart = bytes.firstIndex(of: UInt8(ascii: "?")) ?? bytes.count
            let given = bytes[..<queryStart]
            let last = path.lastIndex(of: UInt8(ascii: "/")) ?? 0
            let merged = given.first == UInt8(ascii: "/") ? Array(given) : Array(path[...last]) + given
            rest = withoutDots(merged) + bytes[queryStart...]
        }
        return String(decoding: root + rest, as: UTF8.self)
    }

    /// Whether a reference starts with a scheme (RFC 3986 §3.1).
    private static func hasScheme(_ bytes: [UInt8]) -> Bool {
        guard let colon = bytes.firstIndex(of: UInt8(ascii: ":")), let first = bytes.first,
            isLetter(first)
        else { return false }
        return bytes[..<colon].allSatisfy { isLetter($0) || HTTPSyntax.isDigit($0) || "+-.".utf8.contains($0) }
    }

    private static func isLetter(_ byte: UInt8) -> Bool {
        let lower = HTTPSyntax.lowercased(byte)
        return lower >= UInt8(ascii: "a") && lower <= UInt8(ascii: "z")
    }

    /// A whole URL with such a path.
    private static func withoutDots(whole bytes: [UInt8]) -> [UInt8] {
        guard let colon = bytes.firstIndex(of: UInt8(ascii: ":")), bytes[colon...].starts(with: "://".utf8) else {
            return bytes
        }
        let rest = bytes[(colon + 3)...]
        guard let start = rest.firstIndex(where: { $0 == UInt8(ascii: "/") || $0 == UInt8(ascii: "?") }),
            rest[start] == UInt8(ascii: "/")
        else { return bytes }
        let end = rest[start...].firstIndex(of: UInt8(ascii: "?")) ?? rest.endIndex
        return Array(bytes[..<start]) + withoutDots(Array(rest[start..<end])) + rest[end...]
    }

    /// A path without its "." and ".." parts (RFC 3986 §5.2.4); it never leads above the root.
    private static func withoutDots(_ path: [UInt8]) -> [UInt8] {
        var kept: [ArraySlice<UInt8>] = []
        let parts = path.dropFirst().split(separator: UInt8(ascii: "/"), omittingEmptySubsequences: false)
        for (index, part) in parts.enumerated() {
            let isLast = index == parts.count - 1
            if part.elementsEqual(".".utf8) {
                if isLast { kept.append([]) }
            } else if part.elementsEqual("..".utf8) {
                _ = kept.popLast()
                if isLast { kept.append([]) }
            } else {
                kept.append(part)
            }
        }
        var output: [UInt8] = []
        for part in kept {
            output.append(UInt8(ascii: "/"))
            output.append(contentsOf: part)
        }
        return output.isEmpty ? [UInt8(ascii: "/")] : output
    }

    /// A percent-encoded text; nil if it is not UTF-8 when decoded, or wrongly encoded.
    static func decoded(_ bytes: some Collection<UInt8>) -> String? {
        let bytes = Array(bytes)
        var output: [UInt8] = []
        var index = 0
        while index < bytes.count {
            if bytes[index] == UInt8(ascii: "%") {
                guard index + 2 < bytes.count, let high = IPLiteral.hexValue(bytes[index + 1]),
                    let low = IPLiteral.hexValue(bytes[index + 2])
                else { return nil }
                output.append(high << 4 | low)
                index += 3
            } else {
                output.append(bytes[index])
                index += 1
            }
        }
        guard output.withUnsafeBytes({ UTF8Validator.isValid($0) }) else { return nil }
        return String(decoding: output, as: UTF8.self)
    }
}
