import Transport
import WebSocketProtocol

/// How to get a byte stream to a server.
struct DialPlan: Sendable {
    /// The path of a Unix-domain socket; nil: a host and a port.
    var unixPath: String?
    var host: String
    var port: UInt16
    /// A socket that is connected already.
    var adopted: AdoptedDescriptor?
    /// Whether the host's SRV records say where the servers are.
    var usesService = false
    var proxy: ProxyURL?
    /// What the program has answered to the proxy before; counts for more than the URL.
    var proxyCredentials: HTTPCredentials?
    /// For a proxy that speaks TLS.
    var proxyTLS: TLSContext?
    var connector = Connector.Options()
    /// For the proxy's eyes.
    var userAgent: String?
    var maximumHead = 16384

    /// "host:port", for texts.
    var target: String {
        unixPath.map { "unix:\($0)" } ?? ProxyTarget(host: host, port: port).authority
    }
}
