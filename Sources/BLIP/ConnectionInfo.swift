import CBLIP
import Transport

/// What other threads may ask of a connection; behind its lock. Texts are set once and live as long as the connection.
struct ConnectionInfo {
    /// What the program has set; nil once the connection has ended.
    var settings: ConnectionSettings?
    var subprotocol: Text?
    var version: Int32 = 0
    var stream: Transport.Stream?
    var localAddress: Text?
    var remoteAddress: Text?
    var isSecure = false
    var tlsVersion: Text?
    var tlsCipher: Text?
    var peerCertificate: Text?
    var url: Text?
    var path: Text?
    var head: HTTPHeadRecord?
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
    var counters = ConnectionCounters()
}

/// Figures of a connection, read together.
public struct ConnectionCounters: Sendable {
    var messagesSent: UInt64 = 0
    var messagesReceived: UInt64 = 0
    var framesSent: UInt64 = 0
    var framesReceived: UInt64 = 0
    var bytesSent: UInt64 = 0
    var bytesReceived: UInt64 = 0
    var requestsPending: UInt64 = 0
    var requestsUnanswered: UInt64 = 0
    var messagesQueued: UInt64 = 0

    /// By `BLIP_COUNTER_*`; nil for one that is not known.
    public subscript(counter: Int32) -> UInt64? {
        switch counter {
        case BLIP_COUNTER_MESSAGES_SENT: messagesSent
        case BLIP_COUNTER_MESSAGES_RECEIVED: messagesReceived
        case BLIP_COUNTER_FRAMES_SENT: framesSent
        case BLIP_COUNTER_FRAMES_RECEIVED: framesReceived
        case BLIP_COUNTER_BYTES_SENT: bytesSent
        case BLIP_COUNTER_BYTES_RECEIVED: bytesReceived
        case BLIP_COUNTER_REQUESTS_PENDING: requestsPending
        case BLIP_COUNTER_REQUESTS_UNANSWERED: requestsUnanswered
        case BLIP_COUNTER_MESSAGES_QUEUED: messagesQueued
        default: nil
        }
    }
}
