/// One header line.
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
    /// Whether it can be sent.
    public var isValid: Bool { true }
}
