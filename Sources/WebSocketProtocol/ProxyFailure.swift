/// Why a proxy does not lead to the target.
public struct ProxyFailure: Error, Sendable, Equatable {
    /// Where `code` comes from.
    public enum Domain: Sendable {
        /// A status of HTTP.
        case http
        /// A reply code of SOCKS (RFC 1928 §6).
        case socks
        /// The answer is none of such a proxy; `code` is 0.
        case other
    }

    public let domain: Domain
    public let code: Int
    /// What the proxy did, without its name.
    public let text: String

    public init(_ domain: Domain, _ code: Int, _ text: String) {
        self.domain = domain
        self.code = code
        self.text = text
    }
}
