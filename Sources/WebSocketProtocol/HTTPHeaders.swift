/// Header lines in the order in which they came (RFC 9110 §5.2, §5.3).
public struct HTTPHeaders: Sendable, Equatable {
    /// All lines.
    public var lines: [HTTPHeader]

    /// Makes a list; nothing is checked.
    public init(_ lines: [HTTPHeader] = []) { self.lines = lines }

    /// The value of the first line with that name, whatever its case.
    public subscript(name: String) -> String? {
        lines.first { HTTPSyntax.equal($0.name, name) }?.value
    }

    /// The values of all lines with that name, whatever its case.
    public func all(_ name: String) -> [String] {
        lines.filter { HTTPSyntax.equal($0.name, name) }.map(\.value)
    }

    /// The elements of all lines with that name, split at commas and trimmed; empty ones are left out (RFC 9110
    /// §5.6.1).
    public func elements(_ name: String) -> [String] {
        var result: [String] = []
        for value in all(name) {
            for element in value.utf8.split(separator: UInt8(ascii: ",")) {
                var trimmed = element
                while let first = trimmed.first, HTTPSyntax.isSpace(first) { trimmed.removeFirst() }
                while let last = trimmed.last, HTTPSyntax.isSpace(last) { trimmed.removeLast() }
                if !trimmed.isEmpty { result.append(String(Substring(trimmed))) }
            }
        }
        return result
    }

    /// Whether one of the elements of that name is `element`, whatever the case.
    public func contains(_ element: String, in name: String) -> Bool {
        elements(name).contains { HTTPSyntax.equal($0, element) }
    }
}
