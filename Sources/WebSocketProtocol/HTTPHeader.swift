/// One header line (RFC 9110 §5).
public struct HTTPHeader: Sendable, Equatable {
    /// The name as it was written.
    public var name: String
    /// The value without white space around it.
    public var value: String

    /// Makes a header. Nothing is checked here: see `isValid`.
    public init(_ name: String, _ value: String) {
        self.name = name
        self.value = value
    }

    /// Whether bytes can be sent as a value.
    public static func isValidValue(_ bytes: some BidirectionalCollection<UInt8>) -> Bool {
        guard bytes.allSatisfy({ HTTPSyntax.isValue($0) }) else { return false }
        guard let first = bytes.first, let last = bytes.last else { return true }
        return !HTTPSyntax.isSpace(first) && !HTTPSyntax.isSpace(last)
    }

    /// Whether it can be sent: the name is a token, and the value has no control characters (above all no line ends)
    /// and no white space at its ends.
    public var isValid: Bool {
        HTTPSyntax.isToken(name.utf8) && Self.isValidValue(value.utf8)
    }
}
