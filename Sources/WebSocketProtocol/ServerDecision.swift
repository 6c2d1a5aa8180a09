/// What a server answers to an upgrade request.
public enum ServerDecision: Sendable, Equatable {
    /// Send `response`; frames follow in both directions.
    case accept(subprotocol: String, response: [UInt8])
    /// Send `response`, then end the connection. `text` says why, for a log.
    case refuse(status: Int, response: [UInt8], text: String)
}
