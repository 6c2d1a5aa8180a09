/// Which proxy the environment names, by curl's rules.
///
/// `ws_proxy` and `wss_proxy`, then `http_proxy` for ws and `https_proxy` for wss, then `all_proxy`, lower case before
/// upper. `HTTP_PROXY` is never looked at: a CGI program gets it from the client's Proxy header. `no_proxy` lists hosts
/// that are connected to directly.
public struct ProxyEnvironment: Sendable {
    private let read: @Sendable (String) -> String?

    /// `read` gives a variable's value.
    public init(_ read: @escaping @Sendable (String) -> String?) {
        self.read = read
    }

    private func value(_ names: String...) -> String? {
        for name in names {
            if let value = read(name), !value.isEmpty { return value }
        }
        return nil
    }

    /// The proxy's URL for a target, as it stands in the environment; nil: none.
    public func proxy(isSecure: Bool, host: String, port: UInt16) -> String? {
        if let exceptions = value("no_proxy", "NO_PROXY"), Self.matches(exceptions, host: host) { return nil }
        return isSecure
            ? value("wss_proxy", "WSS_PROXY", "https_proxy", "HTTPS_PROXY", "all_proxy", "ALL_PROXY")
            : value("ws_proxy", "WS_PROXY", "http_proxy", "all_proxy", "ALL_PROXY")
    }

    /// Whether a list such as "localhost,.example.com,10.0.0.0/8,[::1]" names the host.
    ///
    /// An entry matches the host itself and names below it, a dot in front or not; an address matches as a network in
    /// CIDR form too; "*" matches all.
    static func matches(_ list: String, host: String) -> Bool {
        let host = trimmed(Substring(host))
        let address = IPLiteral.bytes(host)
        let entries = list.utf8.split { $0 == UInt8(ascii: ",") || HTTPSyntax.isSpace($0) }
        return entries.contains { entry in
            let text = String(decoding: entry.map { HTTPSyntax.lowercased($0) }, as: UTF8.self)
            if text == "*" { return true }
            if let address { return contains(text, address) }
            let name = trimmed(Substring(text))
            guard !name.isEmpty, host.utf8.count >= name.utf8.count, host.hasSuffix(name) else { return false }
            return host.utf8.count == name.utf8.count
                || host.utf8.dropLast(name.utf8.count).last == UInt8(ascii: ".")
        }
    }

    /// The name without a dot at either end and without brackets.
    private static func trimmed(_ name: Substring) -> String {
        var name = name
        if name.hasPrefix("["), name.hasSuffix("]") { name = name.dropFirst().dropLast() }
        if name.hasPrefix(".") { name = name.dropFirst() }
        if name.hasSuffix(".") { name = name.dropLast() }
        return String(name)
    }

    /// Whether an address or network has the address in it.
    private static func contains(_ entry: String, _ address: [UInt8]) -> Bool {
        let parts = entry.split(separator: "/", maxSplits: 1)
        guard let first = parts.first, let network = IPLiteral.bytes(trimmed(first)), network.count == address.count
        else { return false }
        var bits = network.count * 8
        if parts.count == 2 {
            guard let given = HTTPSyntax.number(String(parts[1])), given <= bits else { return false }
            bits = Int(given)
        }
        for index in 0..<network.count {
            let left = min(max(bits - index * 8, 0), 8)
            let mask = UInt8(truncatingIfNeeded: 0xFF00 >> left)
            if (network[index] ^ address[index]) & mask != 0 { return false }
        }
        return true
    }
}
