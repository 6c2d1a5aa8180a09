/// The client's side of the upgrade (RFC 6455 §4.1).
public struct ClientHandshake: Sendable {
    /// The request's bytes, ready to send.
    public let request: [UInt8]

    /// `nonce`: 16 fresh random bytes.
    public init(
        url: WebSocketURL, protocols: [String], headers: [HTTPHeader] = [], userAgent: String? = nil, nonce: [UInt8]
    ) throws(UpgradeFailure) {
        request = []
    }

    /// Whether the server's answer completes the upgrade; gives the subprotocol agreed upon.
    public func check(_ response: HTTPResponseHead) -> Result<String, UpgradeFailure> {
        .failure(UpgradeFailure(.http, "not written yet"))
    }

    /// Headers that the handshake makes itself and that a program may not set.
    public static func isReserved(_ name: String) -> Bool { false }

    /// Whether a text may be offered or accepted as a subprotocol: an HTTP token (RFC 6455 §4.1).
    public static func isValidProtocol(_ name: String) -> Bool { true }
}
