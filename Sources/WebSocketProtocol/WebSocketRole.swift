// WebSocketProtocol holds RFC 6455 framing, the HTTP/1.1 upgrade and WebSocket URLs as pure computation: it opens no
// socket, starts no thread, reads no clock and draws no random number. Bytes, times and entropy are arguments.

/// The side of the connection that this program is on (RFC 6455 §5.1: clients mask, servers do not).
public enum WebSocketRole: UInt8, Sendable {
    /// We opened the connection: frames received must be unmasked, frames sent must be masked.
    case client
    /// We accepted the connection: frames received must be masked, frames sent must not be.
    case server
}
