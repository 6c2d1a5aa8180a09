/// Why challenges or credentials of HTTP cannot be read.
public struct HTTPChallengeFailure: Error, Sendable, Equatable, CustomStringConvertible {
    /// What is wrong. It quotes nothing of the header: credentials are read by the same code.
    public let text: String

    /// `text`.
    public var description: String { text }

    init(_ text: String) { self.text = text }
}
