import BLIPProtocol
import CBLIP

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
