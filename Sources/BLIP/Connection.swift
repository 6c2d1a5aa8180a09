import BLIPProtocol
import CBLIP
import Synchronization
import Transport
import WebSocketProtocol

/// One BLIP connection over a WebSocket, outgoing or accepted by a listener.
///
/// ## Overview
/// It lives on one loop; everything without a lock or an atomic is touched on that loop's thread alone. Other threads
/// reach it through its inbox (messages to send) and by posting to the loop (everything else).
///
/// ## Life
/// new → connecting → open → closing → closed. Whatever happens, `finish` runs once: it completes every request, tells
/// every stream and every send that did not get through, and the closed callback comes last.
public final class Connection: LoopWork, SlotOwner, StreamDelegate, @unchecked Sendable {
    public static var handleKind: HandleKind { .connection }
    public static var tellsLastReference: Bool { true }
    public var slot: UInt32 = 0
    private let programReferences = Atomic<Int>(-1)

    /// Where it is on its way.
    enum Phase {
        case idle
        case connecting
        case securing
        case upgrading
        /// A listener's accept callback looks at the request.
        case waitingForAccept
        case open
        case closing
        case closed
    }

    // Small ones side by side: many connections are idle, and there may be a million of them.
    let publishedState: Atomic<Int32>
    /// Accepted by a listener.
    let isIncoming: Bool
    /// A carrier brings whole frames, in place of a stream.
    let isFramed: Bool
    private let hasNewSettings = Atomic<Bool>(false)
    /// The program was told that the connection is closing.
    let hasAnnouncedClosing = Atomic<Bool>(false)
    // The loop's.
    var phase = Phase.idle
    var version = ProtocolVersion.v3
    /// The program wants to see each frame.
    private(set) var isTracing = false
    var isOverfull = false
    /// Closing gracefully: refuse new requests, finish what is under way.
    var isDraining = false
    var isReadingPaused = false
    /// The engine has a frame to go on with before the next.
    var isFrameSuspended = false
    /// The engine is at work and may call the program: what is sent meanwhile goes through the inbox.
    var isFilling = false
    /// A page of the library's own: the program does not hear of it.
    var isInternal = false
    /// When it opened, in seconds of the monotonic clock.
    var openedAt: UInt32 = 0
    /// Its number among those of its loop, from 1.
    var serial: UInt32 = 0
    /// Without an answer, of the keep-alive.
    var silentPings: UInt32 = 0

    let context: LoopContext
    let configuration: Configuration
    private let place: Box<WebSocketURL>?
    weak let listener: Listener?
    /// The handle that callbacks get; the library's own reference keeps it valid until the closed callback was run.
    private(set) var handle: OpaquePointer?

    let inbox = Inbox()
    /// What other threads may ask; under the lock of the loop's connections.
    private var info = ConnectionInfo()
    let backlog = Atomic<Int>(0)

    // The loop's.
    /// Made when the first byte of BLIP comes or goes: an idle connection does without.
    var session: Session? { didSet { uncountedSession = session.map { Unmanaged.passUnretained($0) } } }
    var stream: Transport.Stream? { didSet { uncountedStream = stream.map { Unmanaged.passUnretained($0) } } }
    /// In place of the stream; nil again once the connection has ended.
    var carrier: FrameCarrier?
    // The same, for the paths that every message takes: the connection holds the objects, nobody has to count.
    private var uncountedSession: Unmanaged<Session>?
    private var uncountedStream: Unmanaged<Transport.Stream>?
    var dialer: Dialer?
    var stalls: StallWatch?
    var upgrade: Upgrade?
    /// Of an outgoing connection until it is open.
    var attempt: ClientAttempt?
    /// What the loop goes by; `info` has what the program has set.
    private var knownSettings: ConnectionSettings {
        didSet {
            uncountedSettings = Unmanaged.passUnretained(knownSettings)
            isTracing = knownSettings.trace != nil
        }
    }
    private var uncountedSettings: Unmanaged<ConnectionSettings>
    var timer: ConnectionTimer?
    /// Whom to tell of the backlog; few want it.
    var marks: BacklogMarks?
    var waitingToSend: [BLIPMessage] = []
    var indexInContext = -1
    var unanswered = 0
    /// Bytes of responses that wait to be sent.
    var heldReplies = 0
    private var endReason: Box<Failure>?
    /// What the connection's end is reported as; nil if it is as asked.
    var failure: Failure? {
        get { endReason?.value }
        set { endReason = newValue.map { Box($0) } }
    }
    /// Made when the connection drains, or "Bye" is said.
    var farewell: Farewell?
    // Keep-alive.
    var lastBytesReceived: UInt64 = 0
    var nextPing = UInt64.max
    /// Why it cannot connect at all.
    private var setup: Box<Failure>?
    var setupFailure: Failure? { setup?.value }

    /// Where it connects to; nil if it was accepted.
    var url: WebSocketURL? { place?.value }
    var loop: EventLoop { context.loop }

    /// An outgoing connection.
    public convenience init(
        runtime: Runtime, url: WebSocketURL, options: ConnectionOptions?, adopted: AdoptedDescriptor? = nil
    ) throws(Failure) {
        guard !runtime.isStopped, let context = runtime.pickContext() else {
            throw Failure(BLIP_ERROR_STOPPED, "The runtime was stopped.")
        }
        let (configuration, failure) = Configuration.make(options, for: url, in: runtime, adopted: adopted)
        try self.init(context: context, url: url, configuration: configuration, setupFailure: failure)
    }

    /// An outgoing connection that lives on a certain loop.
    init(
        context: LoopContext, url: WebSocketURL, configuration: Configuration, setupFailure: Failure?
    ) throws(Failure) {
        let runtime = context.runtime
        self.configuration = configuration
        setup = setupFailure.map { Box($0) }
        self.context = context
        isIncoming = false
        isFramed = false
        // What is in the configuration is wiped some day; a String is not.
        place = Box(url.withoutCredentials)
        listener = nil
        publishedState = Atomic(BLIP_STATE_NEW)
        let settings = ConnectionSettings()
        knownSettings = settings
        uncountedSettings = Unmanaged.passUnretained(settings)
        runtimeHold = runtime
        super.init()
        withInfo { $0.settings = knownSettings }
        handle = HandleTable.create(self)
        runtime.objectDidBegin()
        // Known to its loop from now on, so that a runtime that stops ends it.
        guard context.loop.post({ [self] in begin() }) else {
            runtime.objectDidEnd()
            throw Failure(BLIP_ERROR_STOPPED, "The runtime was stopped.")
        }
    }

    /// One without a stream.
    init(context: LoopContext, runtime: Runtime, configuration: Configuration, carrier: FrameCarrier) {
        self.context = context
        self.configuration = configuration
        self.carrier = carrier
        isIncoming = false
        isFramed = true
        place = nil
        listener = nil
        publishedState = Atomic(BLIP_STATE_NEW)
        let settings = ConnectionSettings.none
        knownSettings = settings
        uncountedSettings = Unmanaged.passUnretained(settings)
        runtimeHold = runtime
        super.init()
        withInfo { $0.settings = knownSettings }
        handle = HandleTable.create(self)
        runtime.objectDidBegin()
        carrier.connection = self
    }

    /// A connection that a listener has accepted. Loop thread, unless it has a carrier.
    init(context: LoopContext, listener: Listener, carrier: FrameCarrier? = nil) {
        self.context = context
        self.listener = listener
        self.carrier = carrier
        isIncoming = true
        isFramed = carrier != nil
        place = nil
        configuration = listener.configuration
        publishedState = Atomic(BLIP_STATE_CONNECTING)
        let settings = listener.connectionSettings
        knownSettings = settings
        uncountedSettings = Unmanaged.passUnretained(settings)
        isTracing = settings.trace != nil
        runtimeHold = context.runtime
        super.init()
        withInfo { $0.settings = knownSettings }
        handle = HandleTable.create(self)
        runtimeHold.objectDidBegin()
        carrier?.connection = self
    }

    @inline(__always)
    func withInfo<R>(_ body: (inout ConnectionInfo) -> R) -> R {
        context.infoLock.withLock { _ in body(&info) }
    }

    /// Keeps the runtime while the connection exists.
    let runtimeHold: Runtime

    deinit {
        info.error?.end()
        HandleTable.freeSlot(slot)
    }

    /// As work of its loop a connection takes what other threads have put into its inbox.
    public override func run() { accept(inbox.drain()) }

    /// Asks for a turn of output.
    @inline(__always)
    func requestOutput() {
        if let uncountedStream {
            uncountedStream._withUnsafeGuaranteedRef { $0.requestOutput() }
        } else {
            carrier?.requestOutput(loop)
        }
    }

    /// Calls `body` with the engine of an open connection.
    @inline(__always)
    func withEngine(_ body: (Engine) -> Void) {
        if let uncountedSession {
            uncountedSession._withUnsafeGuaranteedRef { body($0.engine) }
        } else if let engine = openSession()?.engine {
            body(engine)
        }
    }

    /// The session of an open connection, made now if need be.
    @inline(__always)
    func openSession() -> Session? {
        if let session { return session }
        return phase == .open ? makeSession() : nil
    }

    @inline(never)
    private func makeSession() -> Session {
        let context = context
        let engine = Engine(
            version: version, limits: configuration.limits, compressionLevel: configuration.compressionLevel,
            makeMessage: { context.makeMessage() })
        let known = isFramed ? withInfo { $0.record } : nil
        let record = known ?? CounterRecord(listenerTotals: listener?.totals(of: context))
        let new = Session(engine: engine, link: makeLink(), record: record)
        if known == nil { withInfo { $0.record = record } }
        session = new
        if let link = new.link as? FrameLink { wakeSession(new, link) }
        return new
    }

    private func makeLink() -> Link {
        if isFramed { return FrameLink() }
        if version == .v1 { return StreamLink(closeTimeout: configuration.closeTimeout) }
        return WebSocketLink(role: isIncoming ? .server : .client, configuration: configuration)
    }

    // MARK: Handle

    public func countProgramReferences(by change: Int) -> Int {
        programReferences.wrappingAdd(change, ordering: .acquiringAndReleasing).newValue
    }

    var programReferenceCount: Int { programReferences.load(ordering: .acquiring) }

    /// The program's last reference to an outgoing connection is gone: it closes.
    public func programReferencesDidEnd() {
        guard !isIncoming else { return }
        markClosing()
        loop.post { [self] in
            if phase == .idle {
                finish(nil)
            } else {
                beginClose(code: 1001, reason: [], nil)
            }
        }
    }

    /// Nobody can ask for the error any more.
    public func handleDidEnd() {
        let error = withInfo { info -> OwnedError? in
            defer { info.error = nil }
            return info.error
        }
        error?.end()
    }

    func closeDidSettle() {
        let old = withInfo { info -> OpaquePointer? in
            guard !info.hasEndedHandle else { return nil }
            info.hasEndedHandle = true
            return handle
        }
        HandleTable.releaseOwn(old, as: Connection.self)
    }

    // MARK: Settings, from any thread

    /// Runs a change on the loop: at once if this is its thread and the engine is not at work.
    func perform(_ body: @escaping @Sendable () -> Void) {
        if loop.isCurrent, !isFilling { body() } else { loop.post(body) }
    }

    /// Replaces the settings; what comes from the peer afterwards is handled by the new ones.
    func replaceSettings(_ change: (ConnectionSettings) -> ConnectionSettings?) -> blip_status {
        // The old ones are let go of behind the lock: that may run code of the program.
        let (old, status) = withInfo { info -> (ConnectionSettings?, blip_status) in
            guard let current = info.settings else { return (nil, BLIP_ERROR_CLOSED) }
            guard let new = change(current) else { return (nil, BLIP_ERROR_NOT_FOUND) }
            info.settings = new
            hasNewSettings.store(true, ordering: .releasing)
            return (current, BLIP_OK)
        }
        _ = consume old
        if status == BLIP_OK {
            // So that what was replaced is let go of soon, also if nothing comes.
            loop.post { [self] in _ = settings }
        }
        return status
    }

    public func setHandler(_ profile: Text?, _ handler: RequestHandler?) -> blip_status {
        guard profile == nil || handler == nil || handler?.function != nil || configuration.queue != nil else {
            return BLIP_ERROR_ARGUMENT
        }
        let handler = handler?.function == nil && configuration.queue == nil ? nil : handler
        return replaceSettings { $0.settingHandler(profile, handler) }
    }

    /// Goes by others than the listener's from now on. Loop thread.
    func adopt(_ settings: ConnectionSettings) {
        _ = replaceSettings { _ in settings }
        refreshSettings()
    }

    public func setCallbacks(_ change: (ConnectionSettings) -> Void) -> blip_status {
        replaceSettings { $0.changed(change) }
    }

    /// Shows a frame to the program. Off the path of those who do not look.
    @inline(never)
    func trace(_ frame: UnsafeRawBufferPointer, isOutgoing: Bool) {
        guard let trace = settings.trace, let header = FrameHeader(frame, version) else { return }
        trace.function?(
            handle, isOutgoing, header.number, UInt32(header.type), UInt32(header.flags), blip_slice(frame),
            trace.context)
    }

    /// The settings that hold now. Loop thread.
    @inline(__always)
    var settings: ConnectionSettings {
        if hasNewSettings.load(ordering: .relaxed) { refreshSettings() }
        return knownSettings
    }

    /// The handler for a message of the peer's.
    @inline(__always)
    func handler(for message: BLIPMessage) -> RequestHandler? {
        if hasNewSettings.load(ordering: .relaxed) { refreshSettings() }
        return uncountedSettings._withUnsafeGuaranteedRef {
            Unmanaged.passUnretained($0.routes)._withUnsafeGuaranteedRef {
                $0.handler(for: message.property(Self.profileKey))
            }
        }
    }

    /// The modules, if there are any. Loop thread.
    @inline(__always)
    var hooks: Hooks? {
        if hasNewSettings.load(ordering: .relaxed) { refreshSettings() }
        return uncountedSettings._withUnsafeGuaranteedRef { $0.hooks }
    }

    /// Whether there are modules: all that those pay who have none.
    @inline(__always)
    var hasHooks: Bool {
        if hasNewSettings.load(ordering: .relaxed) { refreshSettings() }
        return uncountedSettings._withUnsafeGuaranteedRef { $0.hooks != nil }
    }

    @inline(never)
    private func refreshSettings() {
        hasNewSettings.store(false, ordering: .relaxed)
        let old = knownSettings
        knownSettings = withInfo { $0.settings } ?? ConnectionSettings()
        _ = consume old
    }

    /// The connection has ended: what the program gave is let go of, and cycles through it end.
    func endSettings() {
        let old = withInfo { info -> ConnectionSettings? in
            defer { info.settings = nil }
            return info.settings
        }
        let known = knownSettings
        knownSettings = ConnectionSettings()
        hasNewSettings.store(false, ordering: .relaxed)
        _ = consume old
        _ = consume known
    }

    // MARK: State

    public var state: Int32 { publishedState.load(ordering: .acquiring) }

    func publish(_ state: Int32) {
        guard publishedState.load(ordering: .relaxed) != state else { return }
        publishedState.store(state, ordering: .releasing)
        if let handler = settings.state {
            deliver(Event(.state(handler), value: Int64(state), connection: self))
        }
    }

    /// Runs an event's callback now, or puts it in the program's queue.
    func deliver(_ event: Event) {
        guard let queue = configuration.queue, !isInternal else { return event.run() }
        if queue.push(event, pausing: isReadingPaused ? nil : self) { pauseForQueue() }
    }

    // MARK: Backpressure of the program's queue

    func pauseForQueue() {
        // What still comes then is the closing handshake, which goes into no queue.
        guard phase != .closing, phase != .closed else { return }
        isReadingPaused = true
        readingDidPause(true)
        stream?.pauseReading()
    }

    func resumeAfterQueue() {
        loop.post { [self] in
            isReadingPaused = false
            readingDidPause(false)
            resumeReading()
        }
    }
}
