import Transport

/// What a TLS handshake agreed on, as other threads may ask for it.
final class TLSDetails: Sendable {
    let version: Text?
    let cipher: Text?
    let peerCertificate: Text?
    let applicationProtocol: Text?
    let isResumed: Bool

    /// Of a stream that is secured.
    init(_ stream: Transport.Stream) {
        version = stream.tlsVersion.map { Text($0) }
        cipher = stream.tlsCipher.map { Text($0) }
        peerCertificate = stream.peerCertificateDER.map { Text($0) }
        applicationProtocol = stream.applicationProtocol.map { Text($0) }
        isResumed = stream.isResumed
    }
}
