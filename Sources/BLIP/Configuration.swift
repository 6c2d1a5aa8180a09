import BLIPProtocol
import CBLIP
import Transport
import WebSocketProtocol

/// What a connection was told by its options: immutable, shared by all connections of a listener.
final class Configuration: Sendable {
    let subprotocols: [String]
    private let subprotocolTexts: [Text]
    let headers: [HTTPHeader]
    let userAgent: String?
    let queue: EventQueue?
    /// Nanoseconds; 0: none.
    let connectTimeout: UInt64
    let closeTimeout: UInt64
    /// The most that closing by "Bye" takes, from the question to the end.
    let byeTimeout: UInt64
    /// How long a connection goes on without the peer's direction; 0: not at all.
    let halfClose: UInt64
    let readTimeout: UInt64
    let writeTimeout: UInt64
    let pingInterval: UInt64
    let pingsMissed: UInt32
    /// No ping after an interval in which something was received.
    let pingsOnlyIdle: Bool
    let limits: Limits
    let httpHead: Int
    let repliesLimit: Int
    let compressionLevel: Int32
    let tls: TLSContext?
    let tlsServerName: String?
    /// Authentication, redirects and cookies; of use to outgoing connections only.
    let http: HTTPOptions
    /// Makes TLS for where a redirect leads; with the client's certificate, or without.
    let makeTLS: (@Sendable (_ withIdentity: Bool) throws(TransportError) -> TLSContext)?
    /// How servers are reached; of use to outgoing connections only.
    let dial: DialOptions

    init(
        _ common: CommonOptions, queue: EventQueue?, tls: TLSContext?, dial: DialOptions = DialOptions(),
        http: HTTPOptions = HTTPOptions(),
        makeTLS: (@Sendable (_ withIdentity: Bool) throws(TransportError) -> TLSContext)? = nil
    ) {
        subprotocols = common.subprotocols.isEmpty ? ["BLIP_3", "BLIP"] : common.subprotocols
        subprotocolTexts = subprotocols.map { Text($0) }
        headers = common.headers
        userAgent = common.userAgent
        self.queue = common.queue ?? queue
        connectTimeout = nanoseconds(common.connectTimeout)
        closeTimeout = nanoseconds(common.closeTimeout)
        byeTimeout = nanoseconds(common.byeTimeout)
        halfClose = nanoseconds(common.halfClose)
        readTimeout = nanoseconds(common.readTimeout)
        writeTimeout = nanoseconds(common.writeTimeout)
        pingInterval = nanoseconds(common.pingInterval)
        pingsMissed = common.pingsMissed
        pingsOnlyIdle = common.pingsOnlyIdle
        limits = common.limits
        httpHead = common.httpHead
        repliesLimit = common.repliesLimit
        compressionLevel = common.compressionLevel
        self.tls = tls
        tlsServerName = common.tlsServerName
        self.dial = dial
        self.http = http
        self.makeTLS = makeTLS
    }

    /// What options come to. What cannot be used is the connection's failure when it is to connect.
    static func make(
        _ options: ConnectionOptions?, for url: WebSocketURL, in runtime: Runtime, adopted: AdoptedDescriptor? = nil
    ) -> (configuration: Configuration, failure: Failure?) {
        let options = options ?? ConnectionOptions()
        do {
            let configuration = try options.configuration(for: url, queue: runtime.queue, adopted: adopted)
            guard url.isWebSocket, let user = url.user,
                BasicCredentials.header(user: user, password: SecretBytes(url.password ?? "")) == nil
            else { return (configuration, nil) }
            let text = "A user name with a colon cannot be sent (RFC 7617)."
            return (configuration, Failure(BLIP_ERROR_ARGUMENT, text))
        } catch {
            return (Configuration(options, queue: runtime.queue, tls: nil), Failure(error))
        }
    }

    /// The text that connections with this subprotocol share.
    func text(of subprotocol: String) -> Text {
        for (name, text) in zip(subprotocols, subprotocolTexts) where name == subprotocol { return text }
        return Text(subprotocol)
    }

    static let rootPath = Text("/")

    /// The version that a subprotocol means; nil if it is none of ours.
    static func version(of subprotocol: String) -> ProtocolVersion? {
        let parts = subprotocol.split(separator: "+", maxSplits: 1, omittingEmptySubsequences: false)
        if parts.count == 2, parts[1].isEmpty { return nil }
        return switch parts.first {
        case "BLIP_3": .v3
        case "BLIP": .v2
        default: nil
        }
    }
}
