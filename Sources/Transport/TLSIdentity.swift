/// Whom this side is: a certificate and its private key, as PEM files.
public struct TLSIdentity: Sendable, Equatable {
    /// The certificate, followed by those of the authorities between it and the root, if any.
    public var certificateFile: String
    /// The private key, not encrypted. It may be the same file.
    public var keyFile: String

    public init(certificateFile: String, keyFile: String) {
        self.certificateFile = certificateFile
        self.keyFile = keyFile
    }
}
