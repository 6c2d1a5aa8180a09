/// Why a client's upgrade did not come about.
public struct UpgradeFailure: Error, Sendable, Equatable, CustomStringConvertible {
    /// The kind of trouble.
    public enum Kind: Sendable, Equatable {
        /// The server answered with another status than 101.
        case httpStatus(Int, reason: String)
        /// The server agreed to no subprotocol, to several, or to one that was not offered.
        case subprotocol
        /// The answer is not a valid one to a WebSocket upgrade.
        case http
        /// A size limit was passed.
        case limit
        /// What the program gave (protocols, headers) cannot be sent.
        case argument
    }
    public let kind: Kind
    /// What happened, to what, what to do.
    public let text: String

    /// `text`.
    public var description: String { text }

    public init(_ kind: Kind, _ text: String) {
        self.kind = kind
        self.text = text
    }
}
