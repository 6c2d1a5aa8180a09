import CBLIP
import Transport
import WebSocketProtocol

/// Options of an outgoing connection.
public final class ConnectionOptions: CommonOptions, SlotOwner, @unchecked Sendable {
    public static var handleKind: HandleKind { .connectionOptions }
    public var slot: UInt32 = 0
    private var verifies = true
    private var dial = DialOptions()
    private var usesEnvironment = false
    private var proxyCAFile: String?
    private var http = HTTPOptions()

    deinit { HandleTable.freeSlot(slot) }

    public func addHeader(_ name: String, _ value: String) -> blip_status {
        guard !ClientHandshake.isReserved(name) else { return BLIP_ERROR_ARGUMENT }
        let header = HTTPHeader(name, value)
        guard header.isValid else { return BLIP_ERROR_ARGUMENT }
        headers.append(header)
        return BLIP_OK
    }

    public func setUserAgent(_ text: String) -> blip_status {
        guard text.isEmpty || HTTPHeader("User-Agent", text).isValid else {
            return BLIP_ERROR_ARGUMENT
        }
        userAgent = text.isEmpty ? nil : text
        return BLIP_OK
    }

    public func setCAFile(_ path: String) { caFile = path.isEmpty ? nil : path }
    public func setVerifies(_ verifies: Bool) { self.verifies = verifies }
    public func setServerName(_ name: String) { tlsServerName = name.isEmpty ? nil : name }

    // MARK: Authentication, redirects, cookies

    public func setCredentials(_ user: String, _ password: UnsafeRawBufferPointer) -> blip_status {
        let password = SecretBytes(password)
        guard !user.isEmpty || password.count > 0 else {
            http.credentials = nil
            return BLIP_OK
        }
        guard BasicCredentials.header(user: user, password: password) != nil else { return BLIP_ERROR_ARGUMENT }
        http.credentials = .password(user: user, password)
        return BLIP_OK
    }

    public func setBearerToken(_ token: UnsafeRawBufferPointer) -> blip_status {
        guard !token.isEmpty else {
            http.credentials = nil
            return BLIP_OK
        }
        guard BearerToken.isValid(token) else { return BLIP_ERROR_ARGUMENT }
        http.credentials = .token(SecretBytes(token))
        return BLIP_OK
    }

    public func setPreemptive(_ preemptive: Bool) { http.isPreemptive = preemptive }
    public func setCookies(_ enabled: Bool) { http.usesCookies = enabled }

    public func setRedirectLimit(_ count: UInt32) -> blip_status {
        guard count <= 100 else { return BLIP_ERROR_ARGUMENT }
        http.redirects = Int(count)
        return BLIP_OK
    }

    /// A user name in the URL counts for more than one in the options.
    private func http(for url: WebSocketURL) -> HTTPOptions {
        var http = http
        if let user = url.user { http.credentials = .password(user: user, SecretBytes(url.password ?? "")) }
        return http
    }

    // MARK: The way to the server

    public func setProxy(_ url: String) -> blip_status {
        guard !url.isEmpty else {
            dial.proxy = nil
            return BLIP_OK
        }
        guard case .success(let proxy) = ProxyURL.parse(url) else { return BLIP_ERROR_URL }
        dial.proxy = proxy
        return BLIP_OK
    }

    public func setProxyFromEnvironment(_ enabled: Bool) { usesEnvironment = enabled }
    public func setProxyCAFile(_ path: String) { proxyCAFile = path.isEmpty ? nil : path }

    public func setLocalAddress(_ host: String, _ port: UInt16) {
        dial.local = host.isEmpty && port == 0 ? nil : LocalBinding(host: host, port: port)
    }

    public func setAddressPolicy(_ policy: Int32) -> blip_status {
        switch policy {
        case BLIP_IP_ANY: dial.policy = .any
        case BLIP_IP_PREFER_4: dial.policy = .preferIPv4
        case BLIP_IP_PREFER_6: dial.policy = .preferIPv6
        case BLIP_IP_ONLY_4: dial.policy = .onlyIPv4
        case BLIP_IP_ONLY_6: dial.policy = .onlyIPv6
        default: return BLIP_ERROR_ARGUMENT
        }
        return BLIP_OK
    }

    public func setServiceLookup(_ enabled: Bool) { dial.usesService = enabled }

    /// The snapshot for a connection; the TLS files and the environment are read now.
    func configuration(
        for url: WebSocketURL, queue: EventQueue?, adopted: AdoptedDescriptor? = nil
    ) throws(TransportError) -> Configuration {
        let (caFile, verifies, identity, lowest, highest) = (caFile, verifies, identity, lowestTLS, highestTLS)
        let tlsOptions = tlsOptions
        let makeTLS: @Sendable (Bool) throws(TransportError) -> TLSContext = {
            (withIdentity: Bool) throws(TransportError) -> TLSContext in
            try TLSContext.sharedClient(
                caFile: caFile, verify: verifies, identity: withIdentity ? identity : nil, minimum: lowest,
                maximum: highest, options: tlsOptions)
        }
        let tls = url.isSecure ? try makeTLS(true) : nil
        var dial = dial
        dial.adopted = adopted
        if usesEnvironment, dial.proxy == nil { dial.readEnvironment() }
        if dial.needsProxyTLS { dial.proxyTLS = try TLSContext.sharedClient(caFile: proxyCAFile, verify: verifies) }
        return Configuration(self, queue: queue, tls: tls, dial: dial, http: http(for: url), makeTLS: makeTLS)
    }
}
