import CBLIP
import Transport
import WebSocketProtocol

/// What other threads may ask of a connection; behind its lock. Texts are set once and live as long as the connection.
struct ConnectionInfo {
    /// What the program has set; nil once the connection has ended.
    var settings: ConnectionSettings?
    var subprotocol: Text?
    var version: Int32 = 0
    var stream: Transport.Stream?
    var localAddress: StreamAddress?
    var remoteAddress: StreamAddress?
    var isSecure = false
    var tls: TLSDetails?
    var url: Text?
    var path: Text?
    var head: HTTPHeadRecord?
    /// What a program decides about a client; until the open callback has been run.
    var decision: AcceptDecision?
    /// Whose credentials were right.
    var user: Text?
    var error: OwnedError?
    var closeCode: Int32 = 0
    var userData: Handler<Never>?
    var openWaiters: [Waiter] = []
    var closeWaiters: [Waiter] = []
    /// Why or how it ended.
    var finalStatus: blip_status?
    /// Everything about its end was told.
    var hasEnded = false
    var hasEndedHandle = false
    /// Made with the session.
    var record: CounterRecord?
}
