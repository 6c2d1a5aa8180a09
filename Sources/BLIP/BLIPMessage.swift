import BLIPProtocol
import CBLIP
import Synchronization
import Transport

/// A message as the program knows it: the engine's message with a handle, its connection and its callbacks.
///
/// A message is the program's alone until it is sent ("frozen"), then its connection's loop thread owns what changes;
/// what other threads may ask is atomic or in `Extras` under its lock.
public final class BLIPMessage: Message, SlotOwner, @unchecked Sendable {
    public static var handleKind: HandleKind { .message }
    public var slot: UInt32 = 0

    /// The connection that it belongs to; set when it is sent or received.
    @inline(__always)
    public internal(set) var connection: Connection? {
        get { countedConnection }
        set {
            uncountedConnection = newValue.map { Unmanaged.passUnretained($0) }
            countedConnection = newValue
        }
    }
    private var countedConnection: Connection?
    /// The same, for the paths that every message takes: `countedConnection` holds it, nobody has to count.
    private var uncountedConnection: Unmanaged<Connection>?
    /// Received from the peer.
    public internal(set) var isIncoming = false
    /// Accepted for sending, or received: it can no longer be changed.
    let frozen = Atomic<Bool>(false)
    /// Of an incoming request: `ReplyState`.
    let reply = Atomic<UInt8>(ReplyState.open)
    /// Where sending is, for other threads.
    let publishedNumber = Atomic<UInt64>(0)
    let publishedBytes = Atomic<UInt64>(0)
    /// `BLIP_OK` once it was sent, the reason once it never will be, `unknown` before.
    let sentStatus = Atomic<Int32>(BLIPMessage.unknown)
    /// The program wants it to end before its response.
    let isCancelled = Atomic<Bool>(false)
    let isWhole = Atomic<Bool>(false)
    let isBodyStreamed = Atomic<Bool>(false)
    let extrasPointer = Atomic<UnsafeRawPointer?>(nil)

    // Of a request of ours: how its completion is told. Loop thread, once frozen.
    var responseFunction: blip_response_fn?
    var responseContext: UnsafeMutableRawPointer?
    var releaseResponseContext: ReleaseFunction?
    var hasCompleted = false
    /// The loop knows of it.
    var isAccepted = false
    /// Interceptors have seen it.
    var isFiltered = false
    /// Bytes that were added to the connection's backlog for it.
    var countedBytes = 0
    /// Received, kept by the program, and counted there with so many bytes.
    var memory: IncomingMemory?
    var memoryCounted = 0
    /// Of a request of ours: when it was handed to the engine, by the loop's clock.
    var sentAt: UInt64 = 0
    /// Link of the connection's inbox or of a list of its loop; it is in one of them at most.
    var link: UnsafeRawPointer?

    static let unknown = Int32.max

    public required override init() { super.init() }

    deinit {
        memory?.add(-memoryCounted)
        releaseResponseContext?(responseContext)
        releaseExtras()
        HandleTable.freeSlot(slot)
    }

    private func releaseExtras() {
        if let pointer = extrasPointer.exchange(nil, ordering: .acquiringAndReleasing) {
            Unmanaged<MessageExtras>.fromOpaque(pointer).release()
        }
    }

    /// Fresh again, for a pool, with up to so many bytes of each buffer's memory. Nobody else may hold it.
    func recycle(keeping size: Int) {
        reset(keeping: size)
        connection = nil
        isIncoming = false
        frozen.store(false, ordering: .relaxed)
        reply.store(ReplyState.open, ordering: .relaxed)
        publishedNumber.store(0, ordering: .relaxed)
        publishedBytes.store(0, ordering: .relaxed)
        sentStatus.store(Self.unknown, ordering: .relaxed)
        isCancelled.store(false, ordering: .relaxed)
        isAccepted = false
        isFiltered = false
        isWhole.store(false, ordering: .relaxed)
        isBodyStreamed.store(false, ordering: .relaxed)
        hasCompleted = false
        countedBytes = 0
        if extrasPointer.load(ordering: .relaxed) != nil { releaseExtras() }
    }

    /// Makes a fresh message the answer to a request.
    @inline(never)
    func become(_ kind: MessageKind, to request: BLIPMessage, on connection: Connection) {
        self.kind = kind
        number = request.number
        self.connection = connection
        if request.flags.contains(.urgent) { flags = .urgent }
    }

    /// What few messages need, if it was ever needed.
    @inline(__always)
    var existingExtras: MessageExtras? {
        guard let pointer = extrasPointer.load(ordering: .acquiring) else { return nil }
        return Unmanaged<MessageExtras>.fromOpaque(pointer).takeUnretainedValue()
    }

    var extras: MessageExtras {
        if let existing = existingExtras { return existing }
        let new = Unmanaged.passRetained(MessageExtras())
        let (done, seen) = extrasPointer.compareExchange(
            expected: nil, desired: UnsafeRawPointer(new.toOpaque()), ordering: .acquiringAndReleasing)
        if !done, let seen {
            new.release()
            return Unmanaged<MessageExtras>.fromOpaque(seen).takeUnretainedValue()
        }
        return new.takeUnretainedValue()
    }

    public var isFrozen: Bool { frozen.load(ordering: .acquiring) }

    /// Cannot be changed: sent or received, and no interceptor looks at it on this thread.
    @inline(__always)
    public var isFixed: Bool { isFrozen && !LoopContext.isIntercepted(self) }
    public var wantsReply: Bool { kind == .request && !flags.contains(.noReply) }

    public func handleDidEnd() {
        guard isIncoming else {
            if let pushed = existingExtras?.pushed, pushed.abandon(), isFrozen { place?.bodyWasAbandoned(self) }
            return
        }
        if kind == .request, reply.load(ordering: .acquiring) == ReplyState.deferred {
            connection?.requestHandleDidEnd(self)
        }
        if isBodyStreamed.load(ordering: .acquiring) { connection?.streamedHandleDidEnd(self) }
    }

    /// The connection that it is on at the moment, for any thread: that of a carried request may change.
    public var place: Connection? {
        guard let extras = existingExtras, extras.carrier != nil else { return connection }
        return extras.shared.withLock { $0.place }
    }

    /// Of a carried request: it is on this connection now. Loop thread.
    func place(on connection: Connection?) {
        self.connection = connection
        extras.shared.withLock { $0.place = connection }
    }

    /// Calls `body` with the connection, if there is one.
    @inline(__always)
    func withConnection(_ body: (Connection) -> blip_status) -> blip_status? {
        uncountedConnection?._withUnsafeGuaranteedRef { body($0) }
    }

    @inline(__always)
    func belongs(to connection: Connection) -> Bool {
        uncountedConnection?.toOpaque() == Unmanaged.passUnretained(connection).toOpaque()
    }

    /// Somebody wants to know how it ends.
    @inline(__always)
    var wantsCompletion: Bool {
        responseFunction != nil || responseContext != nil || releaseResponseContext != nil
    }

    /// No handle of it is valid.
    var hasNoHandle: Bool { HandleTable.isIdle(slot) }

    /// The response function and context, which the caller now has to call and release.
    func takeCompletion() -> ResponseCompletion {
        defer {
            responseFunction = nil
            responseContext = nil
            releaseResponseContext = nil
        }
        return ResponseCompletion(
            function: responseFunction, context: responseContext, release: releaseResponseContext)
    }

    /// Bytes of the whole body of a message on its way out; nil if that shows at its end.
    var knownBodySize: UInt64? {
        var total = max(bodyBytesSent, UInt64(body.count))
        for source in sources {
            guard let remaining = source.remaining else { return nil }
            total = total.addingReportingOverflow(remaining).overflow ? .max : total + remaining
        }
        return total
    }

    /// Body bytes to be sent as far as they are known, and properties: what counts as backlog.
    var knownSize: Int {
        var total = properties.count + body.count
        for source in sources {
            guard let remaining = source.remaining, let count = Int(exactly: remaining) else { continue }
            total = total.addingReportingOverflow(count).overflow ? Int.max / 4 : total + count
        }
        return min(total, Int.max / 4)
    }
}
