import WebSocketProtocol

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
