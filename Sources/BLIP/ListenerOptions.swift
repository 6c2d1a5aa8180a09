import CBLIP
import Transport

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
