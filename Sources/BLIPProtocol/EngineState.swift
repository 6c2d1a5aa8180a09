/// An acknowledgement that has to go out.
struct Acknowledgement {
    var number: UInt64
    /// Of a response to one of our requests; otherwise of a request of the peer.
    var isOfResponse: Bool
    /// What was received and consumed of the message, in bytes after the frame headers.
    var count: UInt64
}

/// The stored state of an `Engine`, in memory of its own for the same reason as `MessageState`.
struct EngineState: ~Copyable {
    let version: ProtocolVersion
    let limits: Limits
    let compressionLevel: Int32

    // Sending.
    var outbox = Outbox()
    /// The peer sends no more: it acknowledges nothing, and nothing is acknowledged to it.
    var isInputEnded = false
    /// Our requests without a response, by number, from their first frame on.
    var pending = NumberTable()
    /// Those in `pending` whose response nobody waits for.
    var abandonedPending = 0
    /// Messages of which a first, but not the last frame was cut, by `key`.
    var underWay = NumberTable()
    var acknowledgements: [Acknowledgement] = []
    var nextNumber: UInt64 = 1
    var sendChecksum: UInt32 = 0
    var deflater: Deflater?
    var spareGzipDeflater: Deflater?
    var queuedBytes: UInt64 = 0
    /// Messages that are paused or wait for their source.
    var stalledMessages = 0
    /// Of these, those that wait for acknowledgements.
    var pausedMessages = 0
    /// Responses that wait for the end of their request.
    var heldResponses = 0

    // Receiving.
    /// Messages of which a first, but not the last frame was received, by `key`.
    var incoming = NumberTable()
    var nextIncomingNumber: UInt64 = 1
    var receiveChecksum: UInt32 = 0
    var inflater: FrameInflater?
    /// A frame of which a part was inflated.
    var suspended: SuspendedFrame?
    /// A message that has begun with so large a frame that its sender waits for an acknowledgement, which depends on
    /// whether the owner streams it.
    var undecided: Message?
    /// What unfinished messages hold in memory.
    var heldBytes = 0
    /// What they may hold now.
    var heldLimit: Int
    /// Little is left of that: whole messages are looked at too.
    var isTight = false
    /// Responses in `incoming` that somebody waits for.
    var partialResponses = 0

    var counters = EngineCounters()

    init(version: ProtocolVersion, limits: Limits, compressionLevel: Int32) {
        self.version = version
        self.limits = limits
        heldLimit = limits.unfinishedBytes
        self.compressionLevel = compressionLevel
    }
}
