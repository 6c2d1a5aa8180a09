import BLIPProtocol
import CBLIP
import Synchronization
import Transport
import WebSocketProtocol

/// Keeps a connection to one URL: makes a new one whenever the last has ended.
///
/// ## Overview
/// It has one loop, on which all of its connections live, and on which everything without a lock or an atomic is touched.
/// Its modules are registered with each connection before that connects.
///
/// ## Requests
/// One that it carries is on a connection, or in `held`. A connection that ends gives back those of which no byte was cut
/// into a frame; all others it completes itself, so that nothing is ever sent twice.
public final class Reconnector: SlotOwner, RuntimeDependent, @unchecked Sendable {
    public static var handleKind: HandleKind { .reconnector }
    public static var tellsLastReference: Bool { true }
    public var slot: UInt32 = 0
    private let programReferences = Atomic<Int>(-1)

    private struct Shared {
        var policy = ReconnectPolicy()
        var callback: Handler<blip_reconnector_state_fn>?
        var attachments: [Attachment] = []
        var connection: Connection?
        var error: OwnedError?
        /// When the next try is due, in nanoseconds.
        var nextTry: UInt64?
        var waiters: [Waiter] = []
        var stopWaiters: [Waiter] = []
        /// Its end was told.
        var hasStopped = false
        var finalStatus: blip_status?
        var hasEndedHandle = false
    }

    let context: LoopContext
    let configuration: Configuration
    private let runtime: Runtime
    private let url: WebSocketURL
    private let setupFailure: Failure?
    private(set) var handle: OpaquePointer?
    private let shared = Locked(Shared())
    private let publishedState = Atomic<Int32>(BLIP_RECONNECTOR_NEW)
    private let isStopping = Atomic<Bool>(false)

    // The loop's.
    private var policy = ReconnectPolicy()
    private var connection: Connection?
    /// The program may let go of the connection: this reference keeps it open.
    private var connectionHold: OpaquePointer?
    private var failures: UInt32 = 0
    private var openedAt: UInt64?
    private var timer: ReconnectTimer?
    private var held: [BLIPMessage] = []
    private var hasEnded = false

    var loop: EventLoop { context.loop }

    public init(runtime: Runtime, url: String, options: ConnectionOptions?) throws(Failure) {
        switch WebSocketURL.parse(url) {
        case .success(let parsed): self.url = parsed
        case .failure(let failure): throw Failure(BLIP_ERROR_URL, failure.description)
        }
        guard !runtime.isStopped, let context = runtime.pickContext() else {
            throw Failure(BLIP_ERROR_STOPPED, "The runtime was stopped.")
        }
        self.runtime = runtime
        self.context = context
        (configuration, setupFailure) = Configuration.make(options, for: self.url, in: runtime)
        handle = HandleTable.create(self)
        runtime.objectDidBegin()
        // From now on, because requests may wait in it before it is started.
        runtime.add(self)
    }

    deinit {
        shared.withLock { $0.error?.end() }
        HandleTable.freeSlot(slot)
    }

    // MARK: Handle

    public func lendHandle() -> OpaquePointer? { HandleTable.retain(handle, as: Reconnector.self) }

    public func countProgramReferences(by change: Int) -> Int {
        programReferences.wrappingAdd(change, ordering: .acquiringAndReleasing).newValue
    }

    /// The program's last reference is gone: it stops.
    public func programReferencesDidEnd() { stop(timeout: 0) }

    /// The last callback was run: the library's own reference to the handle ends.
    func stoppedDidSettle() {
        let old = shared.withLock { shared -> OpaquePointer? in
            guard !shared.hasEndedHandle else { return nil }
            shared.hasEndedHandle = true
            return handle
        }
        HandleTable.releaseOwn(old, as: Reconnector.self)
    }

    // MARK: Set before it starts

    public func setPolicy(_ change: (inout ReconnectPolicy) -> Void) -> blip_status {
        guard state == BLIP_RECONNECTOR_NEW else { return BLIP_ERROR_STATE }
        shared.withLock { change(&$0.policy) }
        return BLIP_OK
    }

    public func setCallback(_ handler: Handler<blip_reconnector_state_fn>) -> blip_status {
        guard state != BLIP_RECONNECTOR_STOPPED else { return BLIP_ERROR_CLOSED }
        let isWanted = handler.function != nil || configuration.queue != nil
        let old = shared.withLock { shared -> Handler<blip_reconnector_state_fn>? in
            defer { shared.callback = isWanted ? handler : nil }
            return shared.callback
        }
        _ = consume old
        return BLIP_OK
    }

    // MARK: Modules

    /// Registers a module with the connection and all later ones.
    public func add(_ module: Module) -> blip_status {
        guard state != BLIP_RECONNECTOR_STOPPED else { return BLIP_ERROR_CLOSED }
        let attachment = Attachment(module, .listener)
        let isNew = shared.withLock { shared -> Bool in
            guard !shared.attachments.contains(where: { $0.module === module }) else { return false }
            shared.attachments.append(attachment)
            return true
        }
        guard isNew else { return BLIP_ERROR_STATE }
        perform { [self] in connection?.attach([attachment]) }
        return BLIP_OK
    }

    public func remove(_ module: Module) -> blip_status {
        let attachment = shared.withLock { shared -> Attachment? in
            guard let index = shared.attachments.firstIndex(where: { $0.module === module }) else { return nil }
            return shared.attachments.remove(at: index)
        }
        guard let attachment else { return BLIP_ERROR_NOT_FOUND }
        attachment.remove()
        perform { [self] in connection?.detach(attachment) }
        return BLIP_OK
    }

    public var modules: [Module] { shared.withLock { $0.attachments.map(\.module) } }

    private func perform(_ body: @escaping @Sendable () -> Void) {
        if loop.isCurrent { body() } else { loop.post(body) }
    }

    // MARK: Life

    public var state: Int32 { publishedState.load(ordering: .acquiring) }

    public func start() -> blip_status {
        guard !isStopping.load(ordering: .acquiring) else { return BLIP_ERROR_CLOSED }
        let (done, seen) = publishedState.compareExchange(
            expected: BLIP_RECONNECTOR_NEW, desired: BLIP_RECONNECTOR_CONNECTING, ordering: .acquiringAndReleasing)
        guard done else { return seen == BLIP_RECONNECTOR_STOPPED ? BLIP_ERROR_CLOSED : BLIP_ERROR_STATE }
        let isPosted = loop.post { [self] in
            policy = shared.withLock { $0.policy }
            attempt()
        }
        if !isPosted { end(Failure(BLIP_ERROR_STOPPED, "The runtime was stopped.")) }
        return isPosted ? BLIP_OK : BLIP_ERROR_STOPPED
    }

    /// Tries now if it waits, and from the shortest delay on.
    public func wake() -> blip_status {
        guard state != BLIP_RECONNECTOR_STOPPED else { return BLIP_ERROR_CLOSED }
        loop.post { [self] in
            guard timer != nil else { return }
            endTimer()
            failures = 0
            attempt()
        }
        return BLIP_OK
    }

    /// Ends for ever; an open connection closes gracefully within so many milliseconds.
    public func stop(timeout: Int64) {
        guard !isStopping.exchange(true, ordering: .acquiringAndReleasing) else { return }
        let isPosted = loop.post { [self] in
            endTimer()
            let closed = Failure(BLIP_ERROR_CLOSED, "The reconnector was stopped.")
            for message in take(all: &held) { reject(message, closed) }
            guard let connection else { return end(nil) }
            if timeout == 0 {
                connection.beginClose(code: 1000, reason: [], nil)
            } else {
                _ = connection.closeGracefully(timeout: timeout)
            }
        }
        if !isPosted { end(Failure(BLIP_ERROR_STOPPED, "The runtime was stopped.")) }
    }

    func runtimeWillStop() {
        loop.post { [self] in
            isStopping.store(true, ordering: .releasing)
            endTimer()
            if connection == nil { end(Failure(BLIP_ERROR_STOPPED, "The runtime was stopped.")) }
        }
    }

    // MARK: On the loop

    private func take(all messages: inout [BLIPMessage]) -> [BLIPMessage] {
        defer { messages = [] }
        return messages
    }

    private func endTimer() {
        guard let timer else { return }
        loop.cancel(timer)
        timer.reconnector = nil
        self.timer = nil
    }

    func timerDidFire(_ fired: ReconnectTimer) {
        guard timer === fired else { return }
        endTimer()
        attempt()
    }

    private func attempt() {
        guard !hasEnded, connection == nil else { return }
        guard !isStopping.load(ordering: .acquiring) else { return end(nil) }
        let new: Connection
        do throws(Failure) {
            new = try Connection(
                context: context, url: url, configuration: configuration, setupFailure: setupFailure)
        } catch {
            return end(error)
        }
        connection = new
        connectionHold = new.lendHandle()
        let observer = Module(observing: BLIP_OBSERVE_OPEN | BLIP_OBSERVE_CLOSED) {
            [weak self] connection, what, _, status in
            if what == BLIP_OBSERVE_OPEN { self?.didOpen(connection) } else { self?.didClose(connection, status) }
        }
        let attachments = shared.withLock { shared -> [Attachment] in
            shared.connection = new
            shared.nextTry = nil
            return shared.attachments
        }
        new.attach([Attachment(observer, .library)] + attachments)
        publish(BLIP_RECONNECTOR_CONNECTING, BLIP_OK)
        _ = new.connect()
        if !policy.carriesOver { for message in take(all: &held) { give(message) } }
    }

    private func didOpen(_ opened: Connection) {
        guard opened === connection, !hasEnded else { return }
        openedAt = loop.refreshNow()
        publish(BLIP_RECONNECTOR_OPEN, BLIP_OK)
        for waiter in takeWaiters() { waiter.signal(BLIP_OK) }
        for message in take(all: &held) { give(message) }
    }

    private func didClose(_ closed: Connection, _ status: blip_status) {
        guard closed === connection, !hasEnded else { return }
        connection = nil
        shared.withLock { $0.connection = nil }
        HandleTable.release(connectionHold, as: Connection.self)
        connectionHold = nil
        let now = loop.refreshNow()
        if let openedAt, now &- openedAt >= nanoseconds(policy.stableTime) { failures = 0 }
        openedAt = nil
        let failure =
            closed.finalFailure
            ?? Failure(status == BLIP_OK ? BLIP_ERROR_CLOSED : status, "The connection was closed.")
        guard !isStopping.load(ordering: .acquiring) else {
            return end(status == BLIP_ERROR_STOPPED ? failure : nil)
        }
        failures = failures == .max ? .max : failures + 1
        remember(status == BLIP_OK ? nil : failure)
        let isWorthwhile =
            policy.isPersistent
            || ReconnectPolicy.isWorthwhile(failure.status, domain: failure.domain, code: failure.code)
        guard isWorthwhile, status != BLIP_ERROR_STOPPED, policy.attempts == 0 || failures < policy.attempts else {
            return end(failure)
        }
        let deadline = now &+ nanoseconds(policy.delay(after: failures))
        shared.withLock { $0.nextTry = deadline }
        let timer = ReconnectTimer(self)
        self.timer = timer
        loop.schedule(timer, at: deadline)
        publish(BLIP_RECONNECTOR_WAITING, status)
    }

    private func remember(_ failure: Failure?) {
        let error = failure.map { OwnedError(ErrorRecord($0)) }
        let old = shared.withLock { shared -> OwnedError? in
            defer { shared.error = error }
            return shared.error
        }
        old?.end()
    }

    private func publish(_ state: Int32, _ status: blip_status) {
        publishedState.store(state, ordering: .releasing)
        guard let callback = shared.withLock({ $0.callback }) else { return }
        deliver(Event(.reconnecting(callback, self), status: status, value: Int64(state)))
    }

    private func deliver(_ event: Event) {
        if let queue = configuration.queue { _ = queue.push(event) } else { event.run() }
    }

    private func takeWaiters() -> [Waiter] {
        shared.withLock { shared in
            defer { shared.waiters = [] }
            return shared.waiters
        }
    }

    /// The end, once.
    private func end(_ failure: Failure?) {
        guard !hasEnded else { return }
        hasEnded = true
        isStopping.store(true, ordering: .releasing)
        endTimer()
        remember(failure)
        let status = failure?.status ?? BLIP_OK
        let rest = failure ?? Failure(BLIP_ERROR_CLOSED, "The reconnector was stopped.")
        for message in take(all: &held) { reject(message, rest) }
        let (waiters, callback) = shared.withLock { shared in
            shared.finalStatus = status
            shared.attachments = []
            shared.nextTry = nil
            defer {
                shared.waiters = []
                shared.callback = nil
            }
            return (shared.waiters, shared.callback)
        }
        publishedState.store(BLIP_RECONNECTOR_STOPPED, ordering: .releasing)
        for waiter in waiters { waiter.signal(status == BLIP_OK ? BLIP_ERROR_CLOSED : status) }
        if let callback {
            deliver(Event(.reconnecting(callback, self), status: status, value: Int64(BLIP_RECONNECTOR_STOPPED)))
        } else {
            stoppedDidSettle()
        }
        let stopWaiters = shared.withLock { shared -> [Waiter] in
            shared.hasStopped = true
            defer { shared.stopWaiters = [] }
            return shared.stopWaiters
        }
        for waiter in stopWaiters { waiter.signal(status) }
        runtime.remove(self)
        runtime.objectDidEnd()
    }

    // MARK: Requests

    /// Accepts a request; any thread. Its completion will be told exactly once.
    public func send(
        _ request: BLIPMessage, _ function: blip_response_fn?, _ context: UnsafeMutableRawPointer?,
        _ release: ReleaseFunction?
    ) -> blip_status {
        guard request.kind == .request, !request.isIncoming else { return BLIP_ERROR_ARGUMENT }
        let state = state
        guard state != BLIP_RECONNECTOR_STOPPED, !isStopping.load(ordering: .acquiring) else {
            return BLIP_ERROR_CLOSED
        }
        let carries = shared.withLock { $0.policy.carriesOver }
        guard carries || state != BLIP_RECONNECTOR_WAITING else { return BLIP_ERROR_STATE }
        guard request.properties.count <= configuration.limits.properties else { return BLIP_ERROR_LIMIT }
        guard !request.frozen.exchange(true, ordering: .acquiringAndReleasing) else { return BLIP_ERROR_IMMUTABLE }
        request.extras.carrier = self
        request.responseFunction = function
        request.responseContext = context
        request.releaseResponseContext = release
        guard loop.post({ [self] in accept(request) }) else {
            request.responseFunction = nil
            request.responseContext = nil
            request.releaseResponseContext = nil
            request.extras.carrier = nil
            request.frozen.store(false, ordering: .releasing)
            return BLIP_ERROR_CLOSED
        }
        return BLIP_OK
    }

    /// Sends and waits for the response.
    public func request(_ request: BLIPMessage, timeout: Int64) -> (status: blip_status, response: BLIPMessage?) {
        guard EventLoop.current == nil else { return (BLIP_ERROR_WOULD_DEADLOCK, nil) }
        guard request.kind == .request, !request.isIncoming else { return (BLIP_ERROR_ARGUMENT, nil) }
        guard !request.isFrozen else { return (BLIP_ERROR_IMMUTABLE, nil) }
        guard request.wantsReply else { return (BLIP_ERROR_NO_REPLY, nil) }
        let waiter = Waiter()
        request.extras.requestWaiter = waiter
        let status = send(request, nil, nil, nil)
        guard status == BLIP_OK else {
            request.extras.requestWaiter = nil
            return (status, nil)
        }
        if let result = waiter.wait(timeout, in: context) { return (result.status, result.message) }
        request.isCancelled.store(true, ordering: .releasing)
        postAbandon(request, Failure(BLIP_ERROR_TIMEOUT, "The request was not answered in time."))
        return waiter.waitForEnd(in: context)
    }

    private func accept(_ message: BLIPMessage) {
        if message.isCancelled.load(ordering: .acquiring) {
            return reject(message, Failure(BLIP_ERROR_CANCELLED, "The request was cancelled."))
        }
        if let extras = message.existingExtras, extras.timeout >= 0 {
            let timer = RequestTimer(message)
            extras.timer = timer
            loop.schedule(timer, at: loop.refreshNow() &+ nanoseconds(extras.timeout))
        }
        give(message)
    }

    /// Hands a request to the connection, or holds it until there is one that is open.
    private func give(_ message: BLIPMessage) {
        guard !hasEnded, !isStopping.load(ordering: .acquiring) else {
            return reject(message, Failure(BLIP_ERROR_CLOSED, "The reconnector was stopped."))
        }
        let isBefore = state == BLIP_RECONNECTOR_NEW || (connection == nil && timer == nil)
        if let connection, connection.takesRequests(orWillOpen: !policy.carriesOver) {
            message.place(on: connection)
            connection.accept(message)
            connection.requestOutput()
        } else if policy.carriesOver || isBefore {
            held.append(message)
        } else {
            reject(message, Failure(BLIP_ERROR_CONNECTION_LOST, "The connection was lost before the request was sent."))
        }
    }

    /// Whether a request that a connection gives up is to be sent on the next one. Loop thread.
    func takesBack(_ message: BLIPMessage) -> Bool {
        policy.carriesOver && !hasEnded && !isStopping.load(ordering: .acquiring) && message.kind == .request
            && !message.isStarted && !message.hasCompleted && !message.isCancelled.load(ordering: .acquiring)
    }

    func takeBack(_ message: BLIPMessage) { held.append(message) }

    func postAbandon(_ message: BLIPMessage, _ failure: Failure) {
        loop.post { [self] in
            if let connection = message.connection {
                connection.abandon(message, failure)
            } else {
                abandon(message, failure)
            }
        }
    }

    /// Ends a request that is held.
    func abandon(_ message: BLIPMessage, _ failure: Failure) {
        guard let index = held.firstIndex(where: { $0 === message }) else { return }
        held.remove(at: index)
        reject(message, failure)
    }

    /// Completes a request that is on no connection.
    private func reject(_ message: BLIPMessage, _ failure: Failure) {
        guard !message.hasCompleted else { return }
        message.hasCompleted = true
        message.sentStatus.store(failure.status, ordering: .releasing)
        if let extras = message.existingExtras {
            if let timer = extras.timer {
                loop.cancel(timer)
                timer.request = nil
                extras.timer = nil
            }
            let waiters = extras.shared.withLock { shared -> [Waiter] in
                defer { shared.sentWaiters = [] }
                return shared.sentWaiters
            }
            for waiter in waiters { waiter.signal(failure.status) }
            if let sent = extras.sent {
                extras.sent = nil
                deliver(Event(.sent(sent), status: failure.status, message: message))
            }
            if let waiter = extras.requestWaiter {
                extras.requestWaiter = nil
                return waiter.signal(failure.status)
            }
        }
        let completion = message.takeCompletion()
        guard completion.function != nil || completion.context != nil else {
            completion.release?(completion.context)
            return
        }
        deliver(Event(.response(completion), status: failure.status, request: message))
    }

    // MARK: What may be asked

    public func waitOpen(timeout: Int64) -> blip_status {
        guard EventLoop.current == nil else { return BLIP_ERROR_WOULD_DEADLOCK }
        if state == BLIP_RECONNECTOR_NEW {
            let status = start()
            guard status == BLIP_OK || status == BLIP_ERROR_STATE else { return status }
        }
        let waiter = Waiter()
        let now = shared.withLock { shared -> blip_status? in
            if let status = shared.finalStatus { return status == BLIP_OK ? BLIP_ERROR_CLOSED : status }
            if state == BLIP_RECONNECTOR_OPEN { return BLIP_OK }
            shared.waiters.append(waiter)
            return nil
        }
        if let now { return now }
        if let result = waiter.wait(timeout, in: context) { return result.status }
        shared.withLock { $0.waiters.removeAll { $0 === waiter } }
        return BLIP_ERROR_TIMEOUT
    }

    public func waitStopped(timeout: Int64) -> blip_status {
        guard EventLoop.current == nil else { return BLIP_ERROR_WOULD_DEADLOCK }
        let waiter = Waiter()
        let hasStopped = shared.withLock { shared -> Bool in
            if !shared.hasStopped { shared.stopWaiters.append(waiter) }
            return shared.hasStopped
        }
        if hasStopped || waiter.wait(timeout, in: context) != nil { return BLIP_OK }
        shared.withLock { $0.stopWaiters.removeAll { $0 === waiter } }
        return BLIP_ERROR_TIMEOUT
    }

    /// A reference to the connection of the moment, for the program.
    public func lendConnection() -> OpaquePointer? { shared.withLock { $0.connection }?.lendHandle() }

    public var error: OpaquePointer? { shared.withLock { HandleTable.retain($0.error?.handle, as: ErrorRecord.self) } }

    /// Milliseconds until the next try; nil if none is due.
    public var delay: Int64? {
        guard let next = shared.withLock({ $0.nextTry }) else { return nil }
        let now = monotonicNanoseconds()
        return next > now ? Int64((next - now) / 1_000_000) : 0
    }
}
