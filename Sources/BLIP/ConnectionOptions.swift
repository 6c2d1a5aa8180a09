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
        var tls: TLSContext?
        if url.isSecure {
            tls = try TLSContext.sharedClient(
                caFile: caFile, verify: verifies, identity: identity, minimum: lowestTLS, maximum: highestTLS,
                options: tlsOptions)
        }
        var dial = dial
        dial.adopted = adopted
        if usesEnvironment, dial.proxy == nil { dial.readEnvironment() }
        if dial.needsProxyTLS { dial.proxyTLS = try TLSContext.sharedClient(caFile: proxyCAFile, verify: verifies) }
        return Configuration(self, queue: queue, tls: tls, dial: dial)
    }
}
