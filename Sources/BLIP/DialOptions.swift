import CBLIP
import Glibc
import Transport
import WebSocketProtocol

/// What the program wants of the way to a server, whichever that is. The environment is read when it is made.
struct DialOptions: Sendable {
    var policy = AddressPolicy.any
    var local: LocalBinding?
    var usesService = false
    /// Takes precedence over the environment.
    var proxy: ProxyURL?
    /// For proxies that speak TLS.
    var proxyTLS: TLSContext?
    /// A socket that is connected already.
    var adopted: AdoptedDescriptor?
    /// The variables that name proxies; nil: they are not asked.
    private(set) var environment: [String: String]?

    private static let variables = [
        "ws_proxy", "WS_PROXY", "wss_proxy", "WSS_PROXY", "http_proxy", "https_proxy", "HTTPS_PROXY", "all_proxy",
        "ALL_PROXY", "no_proxy", "NO_PROXY",
    ]

    /// Reads the environment, on the caller's thread: `setenv` on another one at the same time is the caller's risk.
    mutating func readEnvironment() {
        var found: [String: String] = [:]
        for name in Self.variables {
            if let value = getenv(name) { found[name] = String(cString: value) }
        }
        environment = found
    }

    /// Whether a proxy that speaks TLS may be needed.
    var needsProxyTLS: Bool {
        if let proxy { return proxy.kind == .https }
        return environment?.values.contains { $0.lowercased().hasPrefix("https:") } ?? false
    }

    /// The way to a URL; fails if the environment names something that is no proxy.
    func plan(for url: WebSocketURL, userAgent: String?, maximumHead: Int) throws(Failure) -> DialPlan {
        var plan = DialPlan(unixPath: url.unixPath, host: url.host, port: url.port)
        plan.connector.timeout = -1
        plan.connector.policy = policy
        plan.connector.local = local
        plan.userAgent = userAgent
        plan.maximumHead = maximumHead
        plan.adopted = adopted
        guard url.unixPath == nil, adopted == nil else { return plan }
        if let proxy { plan.proxy = proxy } else { plan.proxy = try proxyOfEnvironment(url) }
        if plan.proxy?.kind == .https { plan.proxyTLS = proxyTLS }
        plan.usesService = usesService && plan.proxy == nil && !url.isIPLiteral && url.port == url.defaultPort
        return plan
    }

    private func proxyOfEnvironment(_ url: WebSocketURL) throws(Failure) -> ProxyURL? {
        guard let environment else { return nil }
        let found = ProxyEnvironment { environment[$0] }.proxy(isSecure: url.isSecure, host: url.host, port: url.port)
        guard let found else { return nil }
        switch ProxyURL.parse(found) {
        case .success(let proxy): return proxy
        case .failure(let failure):
            throw Failure(BLIP_ERROR_URL, "The environment's proxy cannot be used: \(failure.description).")
        }
    }
}
