/// What a program judges a peer's certificate by.
public struct TrustEvidence: Sendable {
    /// The peer's certificate and those that it sent with it, in DER.
    public let chain: [[UInt8]]
    /// Whom the certificate must be for; nil: nobody in particular, as of a client.
    public let host: String?
    /// OpenSSL's verify error; 0: it would trust the peer.
    public let code: Int32
    /// OpenSSL's words for it.
    public let text: String
}
