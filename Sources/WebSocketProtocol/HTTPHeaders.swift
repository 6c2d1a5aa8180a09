/// Header lines in the order in which they came.
public struct HTTPHeaders: Sendable, Equatable {
    /// All lines.
    public var lines: [HTTPHeader]
    public init(_ lines: [HTTPHeader] = []) { self.lines = lines }
    /// The value of the first line with that name, whatever its case.
    public subscript(name: String) -> String? { nil }
    /// The values of all lines with that name.
    public func all(_ name: String) -> [String] { [] }
    /// The elements of all lines with that name, split at commas and trimmed; empty ones are left out.
    public func elements(_ name: String) -> [String] { [] }
}
