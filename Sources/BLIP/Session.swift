import BLIPProtocol
import WebSocketProtocol

/// What a connection has once BLIP is spoken: the WebSocket parser, the engine, and the control frames that wait.
final class Session {
    var parser: WebSocketParser
    let engine: Engine
    let role: WebSocketRole
    var closing: WebSocketCloseHandshake

    /// Only the last ping is answered (RFC 6455 §5.5.3), so that a flood of them costs nothing.
    var pong: [UInt8]?
    var pings: [Ping] = []
    var closeFrame: (code: UInt16?, reason: [UInt8])?
    var mustWriteClose = false
    /// The peer broke a protocol and was told.
    var isBroken = false
    var isCloseFrameWritten = false
    /// Messages whose last byte is on its way to the operating system and that want to know.
    var flushing: [BLIPMessage] = []
    var pingCounter: UInt64 = 0

    init(engine: Engine, role: WebSocketRole, configuration: Configuration) {
        self.engine = engine
        self.role = role
        // A frame has its header and checksum around the payload that the limit counts.
        parser = WebSocketParser(role: role, maximumMessage: configuration.limits.incomingFrame)
        closing = WebSocketCloseHandshake(role: role, timeout: configuration.closeTimeout)
    }
}
