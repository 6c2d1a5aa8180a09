/// Reads a list of challenges (RFC 9110 §11.2 and §11.3), front to back.
///
/// The list separates both challenges and the parameters of one: what follows a comma is a parameter if its first token
/// has an equals sign behind it, else a new challenge.
struct HTTPChallengeReader {
    static let maximumChallenges = 16
    static let maximumParameters = 32

    private let bytes: [UInt8]
    private var at = 0

    init(_ text: String) { bytes = Array(text.utf8) }

    private var byte: UInt8? { at < bytes.count ? bytes[at] : nil }

    private mutating func skipSpaces() {
        while let byte, HTTPSyntax.isSpace(byte) { at += 1 }
    }

    mutating func readList() throws(HTTPChallengeFailure) -> [HTTPChallenge] {
        var all: [HTTPChallenge] = []
        while true {
            // Empty elements are allowed (RFC 9110 §5.6.1).
            while let byte, HTTPSyntax.isSpace(byte) || byte == UInt8(ascii: ",") { at += 1 }
            guard byte != nil else { break }
            let word = try readToken()
            let end = at
            skipSpaces()
            if byte == UInt8(ascii: "="), var last = all.popLast() {
                guard last.token68 == nil else { throw HTTPChallengeFailure("parameters beside a token") }
                try readParameter(word, into: &last)
                all.append(last)
            } else if byte == UInt8(ascii: "=") {
                throw HTTPChallengeFailure("a parameter before any scheme")
            } else {
                guard all.count < Self.maximumChallenges else {
                    throw HTTPChallengeFailure("more than \(Self.maximumChallenges) challenges")
                }
                var challenge = HTTPChallenge(scheme: word)
                if let byte, byte != UInt8(ascii: ",") {
                    guard at > end else { throw HTTPChallengeFailure("a scheme with something behind it") }
                    try readFirst(into: &challenge)
                }
                all.append(challenge)
            }
            skipSpaces()
            guard byte == nil || byte == UInt8(ascii: ",") else {
                throw HTTPChallengeFailure("no comma behind a parameter or token")
            }
        }
        guard !all.isEmpty else { throw HTTPChallengeFailure("nothing in it") }
        return all
    }

    /// What stands behind a scheme: a token68, or the first parameter.
    private mutating func readFirst(into challenge: inout HTTPChallenge) throws(HTTPChallengeFailure) {
        let start = at
        while let byte, Self.isToken68(byte) { at += 1 }
        let isEmpty = at == start
        while byte == UInt8(ascii: "=") { at += 1 }
        let end = at
        skipSpaces()
        if !isEmpty, byte == nil || byte == UInt8(ascii: ",") {
            challenge.token68 = String(decoding: bytes[start..<end], as: UTF8.self)
            return
        }
        at = start
        let name = try readToken()
        skipSpaces()
        guard byte == UInt8(ascii: "=") else { throw HTTPChallengeFailure("a parameter without a value") }
        try readParameter(name, into: &challenge)
    }

    /// From the equals sign on.
    private mutating func readParameter(
        _ name: String, into challenge: inout HTTPChallenge
    ) throws(HTTPChallengeFailure) {
        at += 1
        skipSpaces()
        let value = byte == UInt8(ascii: "\"") ? try readQuoted() : try readValue()
        guard challenge.parameters.count < Self.maximumParameters else {
            throw HTTPChallengeFailure("more than \(Self.maximumParameters) parameters")
        }
        guard challenge[name] == nil else { throw HTTPChallengeFailure("a parameter twice") }
        challenge.parameters.append(HTTPHeader(name, value))
    }

    /// A token in lower case.
    private mutating func readToken() throws(HTTPChallengeFailure) -> String {
        let start = at
        while let byte, HTTPSyntax.isToken(byte) { at += 1 }
        guard at > start else { throw HTTPChallengeFailure("a name that is not a token") }
        return String(decoding: bytes[start..<at].map { HTTPSyntax.lowercased($0) }, as: UTF8.self)
    }

    private mutating func readValue() throws(HTTPChallengeFailure) -> String {
        let start = at
        while let byte, HTTPSyntax.isToken(byte) { at += 1 }
        guard at > start else { throw HTTPChallengeFailure("a parameter without a value") }
        return String(decoding: bytes[start..<at], as: UTF8.self)
    }

    private mutating func readQuoted() throws(HTTPChallengeFailure) -> String {
        at += 1
        var value: [UInt8] = []
        while let byte {
            at += 1
            switch byte {
            case UInt8(ascii: "\""): return String(decoding: value, as: UTF8.self)
            case UInt8(ascii: "\\"):
                guard let escaped = self.byte, HTTPSyntax.isValue(escaped) else {
                    throw HTTPChallengeFailure("a backslash with nothing to be quoted behind it")
                }
                value.append(escaped)
                at += 1
            default:
                guard HTTPSyntax.isValue(byte) else { throw HTTPChallengeFailure("a control character") }
                value.append(byte)
            }
        }
        throw HTTPChallengeFailure("a quoted text without an end")
    }

    private static func isToken68(_ byte: UInt8) -> Bool {
        switch byte {
        case UInt8(ascii: "0")...UInt8(ascii: "9"), UInt8(ascii: "A")...UInt8(ascii: "Z"),
            UInt8(ascii: "a")...UInt8(ascii: "z"):
            true
        default: "-._~+/".utf8.contains(byte)
        }
    }
}
