import BLIPProtocol
import CBLIP

/// Figures of a connection, or the sums of many, of one moment.
///
/// Every stored property is a `UInt64` or made of such, so that `add` can take them as one row of numbers.
public struct ConnectionCounters: Sendable {
    // Sums that only grow.
    var engine = EngineCounters()
    var bytesSent: UInt64 = 0
    var bytesReceived: UInt64 = 0
    var errorsSent: UInt64 = 0
    var errorsReceived: UInt64 = 0
    /// Nanoseconds.
    var readingPaused: UInt64 = 0
    var sendingPaused: UInt64 = 0
    var connectionsOpened: UInt64 = 0
    var connectionsFailed: UInt64 = 0

    // Levels.
    var requestsPending: UInt64 = 0
    var requestsUnanswered: UInt64 = 0
    var messagesQueued: UInt64 = 0
    var messagesPaused: UInt64 = 0
    var messagesUnfinished: UInt64 = 0
    var memory: UInt64 = 0
    var backlog: UInt64 = 0
    var connections: UInt64 = 0

    /// By `BLIP_COUNTER_*`; nil for one that is not known here.
    public subscript(counter: Int32) -> UInt64? {
        switch counter {
        case BLIP_COUNTER_MESSAGES_SENT: engine.messagesSent
        case BLIP_COUNTER_MESSAGES_RECEIVED: engine.messagesReceived
        case BLIP_COUNTER_FRAMES_SENT: engine.framesSent
        case BLIP_COUNTER_FRAMES_RECEIVED: engine.framesReceived
        case BLIP_COUNTER_BYTES_SENT: bytesSent
        case BLIP_COUNTER_BYTES_RECEIVED: bytesReceived
        case BLIP_COUNTER_REQUESTS_PENDING: requestsPending
        case BLIP_COUNTER_REQUESTS_UNANSWERED: requestsUnanswered
        case BLIP_COUNTER_MESSAGES_QUEUED: messagesQueued
        case BLIP_COUNTER_COMPRESSION_INPUT: engine.compressionInput
        case BLIP_COUNTER_COMPRESSION_OUTPUT: engine.compressionOutput
        case BLIP_COUNTER_DECOMPRESSION_INPUT: engine.decompressionInput
        case BLIP_COUNTER_DECOMPRESSION_OUTPUT: engine.decompressionOutput
        case BLIP_COUNTER_ERRORS_SENT: errorsSent
        case BLIP_COUNTER_ERRORS_RECEIVED: errorsReceived
        case BLIP_COUNTER_READING_PAUSED_TIME: readingPaused / 1000
        case BLIP_COUNTER_SENDING_PAUSED_TIME: sendingPaused / 1000
        case BLIP_COUNTER_MESSAGES_PAUSED: messagesPaused
        case BLIP_COUNTER_MESSAGES_UNFINISHED: messagesUnfinished
        case BLIP_COUNTER_MEMORY: memory
        case BLIP_COUNTER_BACKLOG: backlog
        case BLIP_COUNTER_CONNECTIONS: connections
        case BLIP_COUNTER_CONNECTIONS_OPENED: connectionsOpened
        case BLIP_COUNTER_CONNECTIONS_FAILED: connectionsFailed
        default: nil
        }
    }

    /// Adds what has changed from `old` to `new`; levels may fall.
    mutating func add(_ new: Self, since old: Self = Self()) {
        withUnsafeMutableBytes(of: &self) { sums in
            withUnsafeBytes(of: new) { new in
                withUnsafeBytes(of: old) { old in
                    for offset in stride(from: 0, to: sums.count, by: 8) {
                        let change =
                            new.loadUnaligned(fromByteOffset: offset, as: UInt64.self)
                            &- old.loadUnaligned(fromByteOffset: offset, as: UInt64.self)
                        let sum = sums.loadUnaligned(fromByteOffset: offset, as: UInt64.self) &+ change
                        sums.storeBytes(of: sum, toByteOffset: offset, as: UInt64.self)
                    }
                }
            }
        }
    }

    /// Of a connection that has ended: nothing waits any more.
    mutating func clearLevels() {
        requestsPending = 0
        requestsUnanswered = 0
        messagesQueued = 0
        messagesPaused = 0
        messagesUnfinished = 0
        memory = 0
        backlog = 0
        connections = 0
    }
}
