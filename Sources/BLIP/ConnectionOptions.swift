import CBLIP
import Transport
import WebSocketProtocol

/// Options of an outgoing connection.
public final class ConnectionOptions: CommonOptions, SlotOwner, @unchecked Sendable {
    public static var handleKind: HandleKind { .connectionOptions }
    public var slot: UInt32 = 0
    private var verifies = true

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

    /// The snapshot for a connection; the TLS files are read now.
    func configuration(isSecure: Bool, queue: EventQueue?) throws(TransportError) -> Configuration {
        var tls: TLSContext?
        if isSecure {
            tls = try TLSContext.client(
                caFile: caFile, verify: verifies, identity: identity, minimum: lowestTLS, maximum: highestTLS)
        }
        return Configuration(self, queue: queue, tls: tls)
    }
}
