import BLIPProtocol
import CBLIP
import Transport

/// Why something ended: the status, and the detail that becomes a `blip_error`.
public struct Failure: Error, Sendable {
    public var status: blip_status
    public var domain: String
    public var code: Int64
    public var text: String

    public init(_ status: blip_status, domain: String = "BLIP", code: Int64 = 0, _ text: String) {
        self.status = status
        self.domain = domain
        self.code = code
        self.text = text
    }
}

extension Failure {
    init(_ error: TransportError) {
        let status: blip_status =
            switch error.kind {
            case .refused: BLIP_ERROR_REFUSED
            case .unreachable: BLIP_ERROR_UNREACHABLE
            case .reset, .ended: BLIP_ERROR_CONNECTION_LOST
            case .timedOut: BLIP_ERROR_TIMEOUT
            case .resolve: BLIP_ERROR_RESOLVE
            case .certificate: BLIP_ERROR_CERTIFICATE
            case .tls: BLIP_ERROR_TLS
            case .tlsSetup: BLIP_ERROR_TLS_SETUP
            case .addressInUse: BLIP_ERROR_ADDRESS_IN_USE
            case .permission: BLIP_ERROR_PERMISSION
            case .resources: BLIP_ERROR_RESOURCES
            case .file: BLIP_ERROR_FILE
            default: BLIP_ERROR_NETWORK
            }
        let domain =
            switch error.domain {
            case .posix: "POSIX"
            case .tls: "TLS"
            case .dns: "DNS"
            default: "BLIP"
            }
        self.init(status, domain: domain, code: Int64(error.code), error.text)
    }
}
