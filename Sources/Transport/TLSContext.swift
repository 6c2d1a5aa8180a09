public final class TLSContext: @unchecked Sendable {
    init() {}
    public static func client(
        caFile: String? = nil, verify: Bool = true, identity: TLSIdentity? = nil, minimum: TLSVersion = .v12,
        maximum: TLSVersion = .v13
    ) throws(TransportError) -> TLSContext { TLSContext() }
    public static func server(
        identity: TLSIdentity, clientCAFile: String? = nil, clientCertificateRequired: Bool = false,
        minimum: TLSVersion = .v12, maximum: TLSVersion = .v13
    ) throws(TransportError) -> TLSContext { TLSContext() }
}
