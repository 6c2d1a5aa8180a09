/// Which web pages may connect (RFC 6455 §10.2): browsers name a page's origin in each upgrade, and pages cannot forge
/// it. Requests without one are not from pages.
public struct OriginRules: Sendable {
    private let allowed: [String]

    /// - Parameter allowed: origins such as "https://app.example:8443", "null", or "*" for all. None: pages of the same
    ///   host and port alone.
    public init(_ allowed: [String] = []) { self.allowed = allowed.compactMap { Self.normal($0) } }

    /// Whether a text may be given to `init`.
    public static func isValid(_ origin: String) -> Bool { normal(origin) != nil }

    /// No origins were given.
    public var isEmpty: Bool { allowed.isEmpty }

    /// Whether a request may go on.
    public func allow(_ request: HTTPRequestHead) -> Bool {
        let origins = request.all("Origin")
        guard let given = origins.first else { return true }
        guard origins.count == 1 else { return false }
        if allowed.contains("*") { return true }
        guard let origin = Self.normal(given), origin != "*" else { return false }
        if !allowed.isEmpty { return allowed.contains(origin) }
        guard origin != "null", let host = request["Host"], let scheme = Self.scheme(of: origin) else { return false }
        return Self.normal("\(scheme)://\(host)") == origin
    }

    private static func scheme(of origin: String) -> String? {
        origin.utf8.firstIndex(of: UInt8(ascii: ":")).map { String(origin[..<$0]) }
    }

    /// In lower case, without the scheme's own port; nil if it is no origin (RFC 6454 §6.2).
    private static func normal(_ text: String) -> String? {
        let bytes = text.utf8.map { HTTPSyntax.lowercased($0) }
        let lower = String(decoding: bytes, as: UTF8.self)
        if lower == "null" || lower == "*" { return lower }
        guard bytes.count <= 300, let colon = bytes.firstIndex(of: UInt8(ascii: ":")),
            bytes[colon...].starts(with: "://".utf8), HTTPSyntax.isToken(bytes[..<colon])
        else { return nil }
        var host = bytes[(colon + 3)...]
        guard !host.isEmpty,
            host.allSatisfy({ $0 > 0x20 && $0 < 0x7F && !"/?#@\\\"<>*".utf8.contains($0) })
        else { return nil }
        let port: String
        switch String(decoding: bytes[..<colon], as: UTF8.self) {
        case "http", "ws": port = ":80"
        case "https", "wss": port = ":443"
        default: port = ""
        }
        if !port.isEmpty, host.suffix(port.utf8.count).elementsEqual(port.utf8) { host.removeLast(port.utf8.count) }
        guard !host.isEmpty else { return nil }
        return String(decoding: bytes[..<(colon + 3)] + host, as: UTF8.self)
    }
}
