import BLIPProtocol
import CBLIP
import Transport
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

/// A ping that is to be sent or waits for its pong.
struct Ping {
    let payload: UInt64
    let sentAt: UInt64
    let deadline: UInt64
    let handler: Handler<blip_pong_fn>?
    var isWritten = false
}

/// What a connection has while HTTP is spoken.
final class Upgrade {
    var parser: HTTPHeadParser
    var client: ClientHandshake?
    var output: [UInt8]
    /// The subprotocol that a server has chosen.
    var subprotocol = ""
    /// The connection ends once the output is flushed.
    var endsAfterOutput: Failure?

    init(parser: HTTPHeadParser, client: ClientHandshake? = nil) {
        self.parser = parser
        self.client = client
        output = client?.request ?? []
    }
}

/// The one timer of a connection: connecting, keep-alive, closing.
final class ConnectionTimer: LoopTimer, @unchecked Sendable {
    /// Cleared when the connection ends, which cuts the cycle between the two.
    var connection: Connection?

    init(_ connection: Connection) { self.connection = connection }

    override func fire() { connection?.timerDidFire() }
}
