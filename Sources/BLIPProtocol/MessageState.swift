import Synchronization

/// Where an outgoing message is.
enum SendingPlace: UInt8 {
    /// Not given to an engine, or all cut.
    case none
    /// In the outbox.
    case queued
    /// Too much of it is unacknowledged.
    case paused
    /// Its body source has nothing now.
    case waiting
    /// A response whose request has not arrived whole.
    case held
}

/// What a streamed message has to acknowledge: when its content up to `content` is consumed, `wire` bytes are.
struct AcknowledgementMark {
    var content: UInt64
    var wire: UInt64
}

/// The stored state of a `Message`, in memory of its own: the engine changes it without the run-time checks that class
/// properties which other modules can see would cost.
struct MessageState: ~Copyable {
    var number: UInt64 = 0
    var kind = MessageKind.request
    var flags = MessageFlags()

    // Sending.
    var place = SendingPlace.none
    var isStarted = false
    var isFinished = false
    var isAbandoned = false
    /// The length field and properties (as on the wire) that were cut.
    var headSent = 0
    /// `body` bytes that were cut.
    var bodyOffset = 0
    var sourceIndex = 0
    /// `content` bytes that were cut: what was read ahead from a source.
    var aheadOffset = 0
    var bodyBytesSent: UInt64 = 0
    /// Bytes after the frame headers, as acknowledgements count them.
    var wireSent: UInt64 = 0
    var wireAcknowledged: UInt64 = 0
    /// What the message adds to the engine's `queuedBytes`.
    var queuedBytes: UInt64 = 0
    var next: Unmanaged<Message>?
    var previous: Unmanaged<Message>?

    // Receiving.
    var isIncoming = false
    var isStreamed = false
    var isComplete = false
    var hasBegun = false
    var isDiscarded = false
    /// A second frame has come.
    var isContinued = false
    /// The properties' length is known and so are `propertiesStart` and `propertiesEnd`.
    var hasLength = false
    /// All properties are here and checked.
    var hasProperties = false
    /// `properties` holds them with abbreviations expanded.
    var isExpanded = false
    var failure: MessageFailure?
    var propertiesStart = 0
    var propertiesEnd = 0
    /// `content` bytes up to here are properties or consumed body.
    var bodyStart = 0
    var bodyBytesReceived: UInt64 = 0
    /// Body bytes that the owner took from the buffer.
    var bodyBytesConsumed: UInt64 = 0
    /// Of these, what the owner has done with: what acknowledgements go by.
    var bodyBytesAcknowledged: UInt64 = 0
    var wireReceived: UInt64 = 0
    var wireConsumed: UInt64 = 0
    /// The count of the last acknowledgement.
    var wireReported: UInt64 = 0

    /// Outgoing: full texts. Incoming: only if `isExpanded`.
    var properties = Bytes()
    /// Behind the property that `property(at:)` gave last: index and offset, 32 bits each. Several threads may read a
    /// message.
    let cursor = Atomic<UInt64>(0)
    /// Outgoing.
    var body = Bytes()
    /// Incoming: properties and body as they came. Outgoing: abbreviated properties (v1, v2), then what was read ahead.
    var content = Bytes()
    var sources: [BodySource] = []
    var request: Message?
    /// Incoming request: the response that waits until it is here.
    var heldResponse: Message?
    var marks: [AcknowledgementMark] = []
    var gzipOutput: GzipOutput?
    var gzipInput: Inflater?

    init() {}
}
