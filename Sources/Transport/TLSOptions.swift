/// What few programs change about TLS.
public struct TLSOptions: Sendable, Hashable {
    /// Protocols to offer or to take, the preferred first (RFC 7301); empty: the extension is not used.
    public var protocols: [String] = []
    /// Suites of TLS 1.2 in OpenSSL's cipher list format; nil: OpenSSL's choice.
    public var ciphers: String?
    /// Suites of TLS 1.3, colons between; nil: OpenSSL's choice.
    public var suites: String?
    /// PEM file of revocation lists: the peer's own certificate must not be on its issuer's, which must be there.
    public var crlFile: String?
    /// File to which the secrets of each connection are appended, for Wireshark.
    public var keyLogFile: String?

    public init() {}
}
