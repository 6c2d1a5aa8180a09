/// By which names browsers may ask for pages. Who owns a name can let it mean any address; a page from there that asks for
/// its own name at our address passes for one of ours (DNS rebinding). Names that nobody else can own are safe.
public struct HostRules: Sendable {
    private let names: [String]

    /// - Parameter names: host names, without a port, that are safe besides; "*": all are.
    public init(_ names: [String] = []) { self.names = names.compactMap { Self.normal($0) } }

    /// Whether a text may be given to `init`.
    public static func isValid(_ name: String) -> Bool { normal(name) != nil }

    /// No names were given.
    public var isEmpty: Bool { names.isEmpty }

    /// Whether the request's Host is an IP address, "localhost", a name that was given, or one of `others`. Browsers always
    /// send one.
    public func allow(_ request: HTTPRequestHead, others: [String] = []) -> Bool {
        guard let host = request["Host"] else { return true }
        if names.contains("*") { return true }
        guard let name = Self.name(of: host) else { return false }
        if name == "localhost" || name.hasSuffix(".localhost") || IPLiteral.isIPv4(Array(name.utf8)) { return true }
        if name.hasPrefix("["), name.hasSuffix("]") { return IPLiteral.isIPv6(Array(name.utf8.dropFirst().dropLast())) }
        return names.contains(name) || others.contains { Self.normal($0) == name }
    }

    /// Without the port.
    private static func name(of host: String) -> String? {
        let bytes = Array(host.utf8)
        let start = bytes.firstIndex(of: UInt8(ascii: "]")) ?? 0
        guard let colon = bytes[start...].firstIndex(of: UInt8(ascii: ":")) else { return normal(host) }
        guard bytes[(colon + 1)...].allSatisfy({ HTTPSyntax.isDigit($0) }) else { return nil }
        return normal(String(decoding: bytes[..<colon], as: UTF8.self))
    }

    /// In lower case, without the dot of the root; nil if it is no name and no address.
    private static func normal(_ text: String) -> String? {
        if text == "*" { return text }
        var bytes = text.utf8.map { HTTPSyntax.lowercased($0) }
        if bytes.count > 1, bytes.last == UInt8(ascii: ".") { bytes.removeLast() }
        let isLiteral = bytes.first == UInt8(ascii: "[")
        guard !bytes.isEmpty, bytes.count <= 255,
            bytes.allSatisfy({ $0 > 0x20 && $0 < 0x7F && !"/?#@\\\"<>*,".utf8.contains($0) }),
            isLiteral || !bytes.contains(where: { ":[]".utf8.contains($0) })
        else { return nil }
        return String(decoding: bytes, as: UTF8.self)
    }
}
