import BLIPProtocol
import CBLIP
import Transport
import WebSocketProtocol

/// Options that connections and listeners have in common, as the program sets them. One thread at a time.
public class CommonOptions {
    var subprotocols: [String] = []
    var headers: [HTTPHeader] = []
    var userAgent: String?
    var queue: EventQueue?
    var connectTimeout: Int64 = 15_000
    var closeTimeout: Int64 = 5_000
    /// As long as in the first implementation of BLIP 1.
    var byeTimeout: Int64 = 60_000
    /// 0: a peer that ends its output ends the connection.
    var halfClose: Int64 = 0
    /// 0: none.
    var readTimeout: Int64 = 0
    var writeTimeout: Int64 = 0
    var pingInterval: Int64 = 300_000
    var pingsMissed: UInt32 = 2
    var pingsOnlyIdle = false
    var limits = Limits()
    var httpHead = 16_384
    var repliesLimit = 256 << 20
    var compressionLevel: Int32 = 6
    var certificatePath: String?
    var keyPath: String?
    var caFile: String?
    var minimumTLS: Int32 = 0
    var maximumTLS: Int32 = 0
    var tlsServerName: String?
    var tlsOptions = TLSOptions()

    public init() {}

    public func addSubprotocol(_ name: String) -> blip_status {
        guard ClientHandshake.isValidProtocol(name), Configuration.version(of: name) != nil else {
            return BLIP_ERROR_ARGUMENT
        }
        guard !subprotocols.contains(name) else { return BLIP_OK }
        subprotocols.append(name)
        return BLIP_OK
    }

    public func setQueue(_ queue: EventQueue?) { self.queue = queue }

    public func setConnectTimeout(_ milliseconds: Int64) -> blip_status { set(\.connectTimeout, milliseconds) }
    public func setCloseTimeout(_ milliseconds: Int64) -> blip_status { set(\.closeTimeout, milliseconds) }
    public func setByeTimeout(_ milliseconds: Int64) -> blip_status { set(\.byeTimeout, milliseconds) }
    public func setHalfClose(_ milliseconds: Int64) -> blip_status { set(\.halfClose, milliseconds) }

    // For ever is none, as 0.
    public func setReadTimeout(_ milliseconds: Int64) -> blip_status {
        set(\.readTimeout, milliseconds == -1 ? 0 : milliseconds)
    }

    public func setWriteTimeout(_ milliseconds: Int64) -> blip_status {
        set(\.writeTimeout, milliseconds == -1 ? 0 : milliseconds)
    }

    private func set(_ path: ReferenceWritableKeyPath<CommonOptions, Int64>, _ milliseconds: Int64) -> blip_status {
        guard milliseconds >= -1 else { return BLIP_ERROR_ARGUMENT }
        self[keyPath: path] = milliseconds
        return BLIP_OK
    }

    public func setPing(_ interval: Int64, _ missed: UInt32) -> blip_status {
        guard interval >= 0, interval == 0 || missed > 0 else { return BLIP_ERROR_ARGUMENT }
        pingInterval = interval
        pingsMissed = missed
        return BLIP_OK
    }

    public func setPingOnlyIdle(_ isOn: Bool) { pingsOnlyIdle = isOn }

    /// Outgoing frames; deployed peers refuse more than 32,768 bytes.
    public func setFrameSize(_ bytes: UInt32) -> blip_status {
        guard bytes >= 256, bytes <= 262_144 else { return BLIP_ERROR_ARGUMENT }
        limits.outgoingFrame = Int(bytes)
        limits.smallFrame = min(4096, Int(bytes))
        return BLIP_OK
    }

    public func setCompressionLevel(_ level: Int32) -> blip_status {
        guard (0...9).contains(level) else { return BLIP_ERROR_ARGUMENT }
        compressionLevel = level
        return BLIP_OK
    }

    public func setLimit(_ limit: Int32, _ value: UInt64) -> blip_status {
        guard value > 0, let value = Int(exactly: value), value <= 1 << 40 else { return BLIP_ERROR_ARGUMENT }
        switch limit {
        case BLIP_LIMIT_INCOMING_FRAME:
            guard value >= 64, value <= 1 << 30 else { return BLIP_ERROR_ARGUMENT }
            limits.incomingFrame = value
        case BLIP_LIMIT_PROPERTIES: limits.properties = value
        case BLIP_LIMIT_MESSAGE: limits.message = value
        case BLIP_LIMIT_UNFINISHED_MESSAGES: limits.unfinishedMessages = value
        case BLIP_LIMIT_UNFINISHED_BYTES: limits.unfinishedBytes = value
        case BLIP_LIMIT_RESPONSES: repliesLimit = value
        case BLIP_LIMIT_HTTP_HEAD:
            guard value >= 256, value <= 1 << 20 else { return BLIP_ERROR_ARGUMENT }
            httpHead = value
        default: return BLIP_ERROR_ARGUMENT
        }
        return BLIP_OK
    }

    public func setIdentity(_ certificate: String, _ key: String) {
        certificatePath = certificate.isEmpty ? nil : certificate
        keyPath = key.isEmpty ? certificatePath : key
    }

    /// A name of ALPN (RFC 7301).
    public func addTLSProtocol(_ name: String) -> blip_status {
        guard (1...255).contains(name.utf8.count), tlsOptions.protocols.count < 16 else { return BLIP_ERROR_ARGUMENT }
        if !tlsOptions.protocols.contains(name) { tlsOptions.protocols.append(name) }
        return BLIP_OK
    }

    public func setCiphers(_ ciphers: String, _ suites: String) {
        tlsOptions.ciphers = ciphers.isEmpty ? nil : ciphers
        tlsOptions.suites = suites.isEmpty ? nil : suites
    }

    public func setCRLFile(_ path: String) { tlsOptions.crlFile = path.isEmpty ? nil : path }
    public func setKeyLogFile(_ path: String) { tlsOptions.keyLogFile = path.isEmpty ? nil : path }

    var identity: TLSIdentity? {
        guard let certificatePath, let keyPath else { return nil }
        return TLSIdentity(certificateFile: certificatePath, keyFile: keyPath)
    }

    var lowestTLS: TLSVersion { TLSVersion(rawValue: UInt16(truncatingIfNeeded: minimumTLS)) ?? .v12 }
    var highestTLS: TLSVersion { TLSVersion(rawValue: UInt16(truncatingIfNeeded: maximumTLS)) ?? .v13 }

    public func setTLSVersions(_ minimum: Int32, _ maximum: Int32) -> blip_status {
        let known: [Int32] = [0, BLIP_TLS_1_2, BLIP_TLS_1_3]
        guard known.contains(minimum), known.contains(maximum), maximum == 0 || minimum <= maximum else {
            return BLIP_ERROR_ARGUMENT
        }
        minimumTLS = minimum
        maximumTLS = maximum
        return BLIP_OK
    }
}
