import CBLIP
import Transport
import WebSocketProtocol

/// Options of a listener.
public final class ListenerOptions: CommonOptions, SlotOwner, @unchecked Sendable {
    public static var handleKind: HandleKind { .listenerOptions }
    public var slot: UInt32 = 0
    private(set) var paths: [String] = []
    /// Where plain HTTP gets the runtime's figures.
    private(set) var metricsPath: String?
    private(set) var maximumConnections: UInt32 = 0
    private(set) var speaksBLIP1 = false
    private(set) var speaksWebSocket = true
    private var requiresClientCertificate = false
    private var realm = "BLIP"
    private var users: [String: PasswordHash] = [:]
    private var origins: [String] = []
    private var hosts: [String] = []

    deinit { HandleTable.freeSlot(slot) }

    public func addPath(_ path: String) -> blip_status {
        guard Self.isPath(path) else { return BLIP_ERROR_ARGUMENT }
        paths.append(path)
        return BLIP_OK
    }

    private static func isPath(_ path: String) -> Bool {
        path.hasPrefix("/") && !path.utf8.contains(where: { $0 <= 0x20 || $0 == 0x7F })
    }

    public func setMetricsPath(_ path: String) -> blip_status {
        guard path.isEmpty || Self.isPath(path) else { return BLIP_ERROR_ARGUMENT }
        metricsPath = path.isEmpty ? nil : path
        return BLIP_OK
    }

    public func setClientCAFile(_ path: String, required: Bool) {
        caFile = path.isEmpty ? nil : path
        requiresClientCertificate = required
    }

    // MARK: Who may connect

    public func setRealm(_ text: String) -> blip_status {
        guard HTTPHeader("X", text).isValid else { return BLIP_ERROR_ARGUMENT }
        realm = text.isEmpty ? "BLIP" : text
        return BLIP_OK
    }

    public func addUser(_ name: String, _ password: UnsafeRawBufferPointer) -> blip_status {
        let password = SecretBytes(password)
        guard !name.isEmpty, BasicCredentials.header(user: name, password: password) != nil else {
            return BLIP_ERROR_ARGUMENT
        }
        guard let hash = PasswordHash(password, salt: Randomness.bytes(16)) else { return BLIP_ERROR_RESOURCES }
        users[name] = hash
        return BLIP_OK
    }

    public func addUser(_ name: String, hash: String) -> blip_status {
        guard !name.isEmpty, BasicCredentials.header(user: name, password: SecretBytes("")) != nil,
            let hash = PasswordHash(text: hash)
        else { return BLIP_ERROR_ARGUMENT }
        users[name] = hash
        return BLIP_OK
    }

    /// A hash as text, for `addUser`; nil: OpenSSL refuses.
    public static func hash(_ password: UnsafeRawBufferPointer) -> Text? {
        PasswordHash(SecretBytes(password), salt: Randomness.bytes(16)).map { Text($0.text) }
    }

    public func addOrigin(_ origin: String) -> blip_status {
        guard OriginRules.isValid(origin) else { return BLIP_ERROR_ARGUMENT }
        origins.append(origin)
        return BLIP_OK
    }

    public func addHost(_ name: String) -> blip_status {
        guard HostRules.isValid(name) else { return BLIP_ERROR_ARGUMENT }
        hosts.append(name)
        return BLIP_OK
    }

    var access: ListenerAccess { ListenerAccess(realm: realm, users: users, origins: origins, hosts: hosts) }

    public func setBLIP1(_ enabled: Bool) { speaksBLIP1 = enabled }
    public func setWebSocket(_ enabled: Bool) { speaksWebSocket = enabled }
    public func setMaximumConnections(_ count: UInt32) { maximumConnections = count }

    func configuration(queue: EventQueue?) throws(TransportError) -> Configuration {
        var tls: TLSContext?
        if let identity {
            tls = try TLSContext.server(
                identity: identity, clientCAFile: caFile, clientCertificateRequired: requiresClientCertificate,
                minimum: lowestTLS, maximum: highestTLS, options: tlsOptions)
        }
        return Configuration(self, queue: queue, tls: tls)
    }
}
