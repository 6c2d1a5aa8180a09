import CBLIP
import HTTPService
import Synchronization
import Transport
import WebSocketProtocol

/// Accepts BLIP connections on ports and Unix sockets and spreads them over the runtime's loops.
public final class Listener: SlotOwner, @unchecked Sendable {
    public static var handleKind: HandleKind { .listener }
    public static var tellsLastReference: Bool { true }
    public var slot: UInt32 = 0
    private let programReferences = Atomic<Int>(-1)

    let runtime: Runtime
    let configuration: Configuration
    let paths: [String]
    let speaksBLIP1: Bool
    let speaksWebSocket: Bool
    let metricsPath: String?
    let access: ListenerAccess
    private let maximumConnections: Int
    private let setupFailure: Failure?
    private(set) var handle: OpaquePointer?
    /// Connections that have not ended.
    private let connections = Atomic<Int>(0)
    /// Sums of its connections, one for each loop, under that loop's lock.
    let totals: [CounterTotals]

    private struct Shared {
        var phase = Phase.new
        var acceptors: [Acceptor] = []
        /// In the order of the starts; also after the end.
        var places: [ListenerPlace] = []
        /// Sockets of the program's that were taken over.
        var adopted: [Int32] = []
        var error: OwnedError?
        var stopWaiters: [Waiter] = []
        var hasEndedHandle = false
    }

    private enum Phase {
        case new
        case listening
        case stopping
        case stopped
    }

    private let shared = Locked(Shared())
    private let settings = Locked(Settings())

    private struct Settings {
        var connection = ConnectionSettings()
        var accept: Handler<blip_accept_fn>?
        var stopped: Handler<blip_stopped_fn>?
        var services: [any HTTPService] = []
        var dashboard: Dashboard?
    }

    public init(runtime: Runtime, options: ListenerOptions?) throws(Failure) {
        guard !runtime.isStopped else { throw Failure(BLIP_ERROR_STOPPED, "The runtime was stopped.") }
        let options = options ?? ListenerOptions()
        self.runtime = runtime
        do {
            configuration = try options.configuration(queue: runtime.queue)
            setupFailure = nil
        } catch {
            // Reported as the listener's error when it is to start.
            configuration = Configuration(options, queue: runtime.queue, tls: nil)
            setupFailure = Failure(error)
        }
        paths = options.paths
        speaksBLIP1 = options.speaksBLIP1
        speaksWebSocket = options.speaksWebSocket
        metricsPath = options.metricsPath
        access = options.access
        totals = runtime.contexts.map { _ in CounterTotals() }
        maximumConnections = Int(options.maximumConnections)
        handle = HandleTable.create(self)
        runtime.objectDidBegin()
    }

    deinit {
        shared.withLock { $0.error?.end() }
        HandleTable.freeSlot(slot)
    }

    /// The sums of its connections on a loop.
    func totals(of context: LoopContext) -> CounterTotals? {
        context.index < totals.count ? totals[context.index] : nil
    }

    // MARK: Pages

    var services: [any HTTPService] { settings.withLock { $0.services } }

    /// One more service, for connections that come from now on.
    func add(_ service: any HTTPService) -> blip_status {
        settings.withLock { settings in
            if settings.services.isEmpty { settings.services.append(SiteAssets()) }
            settings.services.append(service)
        }
        return BLIP_OK
    }

    var dashboard: Dashboard? { settings.withLock { $0.dashboard } }

    func addDashboard(_ dashboard: Dashboard) -> blip_status {
        let isFirst = settings.withLock { settings -> Bool in
            guard settings.dashboard == nil else { return false }
            settings.dashboard = dashboard
            return true
        }
        return isFirst ? add(dashboard) : BLIP_ERROR_STATE
    }

    /// A connection of a browser counts like any other.
    func pageDidBegin() {
        connections.add(1, ordering: .relaxed)
        runtime.objectDidBegin()
    }

    // MARK: What its connections begin with

    var connectionSettings: ConnectionSettings { settings.withLock { $0.connection } }
    var acceptHandler: Handler<blip_accept_fn>? { settings.withLock { $0.accept } }

    /// Replaces the settings; the old ones are let go of behind the lock, because that may run code of the program.
    private func replaceSettings(_ change: (ConnectionSettings) -> ConnectionSettings?) -> blip_status {
        let old = settings.withLock { settings -> ConnectionSettings? in
            guard let new = change(settings.connection) else { return nil }
            defer { settings.connection = new }
            return settings.connection
        }
        return old == nil ? BLIP_ERROR_NOT_FOUND : BLIP_OK
    }

    public func setHandler(_ profile: Text?, _ handler: RequestHandler?) -> blip_status {
        guard profile == nil || handler == nil || handler?.function != nil || configuration.queue != nil else {
            return BLIP_ERROR_ARGUMENT
        }
        let handler = handler?.function == nil && configuration.queue == nil ? nil : handler
        return replaceSettings { $0.settingHandler(profile, handler) }
    }

    public func setCallbacks(_ change: (ConnectionSettings) -> Void) { _ = replaceSettings { $0.changed(change) } }

    /// Registers a module with every connection of the listener, those that exist included.
    public func add(_ module: Module) -> blip_status {
        let attachment = Attachment(module, .listener)
        let isNew = settings.withLock { settings -> Bool in
            guard !settings.connection.attachments.contains(where: { $0.module === module }) else { return false }
            settings.connection = settings.connection.adding([attachment])
            return true
        }
        guard isNew else { return BLIP_ERROR_STATE }
        onConnections { $0.attach([attachment]) }
        return BLIP_OK
    }

    public func remove(_ module: Module) -> blip_status {
        var removed: Attachment?
        let status = replaceSettings { settings in
            removed = settings.attachments.first { $0.module === module }
            return removed.flatMap { settings.removing($0) }
        }
        guard let removed else { return status }
        removed.remove()
        onConnections { $0.detach(removed) }
        return status
    }

    public var modules: [Module] { connectionSettings.attachments.map(\.module) }

    private func onConnections(_ body: @escaping @Sendable (Connection) -> Void) {
        runtime.onConnections { [weak self] in if let self, $0.listener === self { body($0) } }
    }

    public func setAccept(_ handler: Handler<blip_accept_fn>?) {
        let old = settings.withLock { settings -> Handler<blip_accept_fn>? in
            defer { settings.accept = handler }
            return settings.accept
        }
        _ = consume old
    }

    public func setStopped(_ handler: Handler<blip_stopped_fn>?) {
        let old = settings.withLock { settings -> Handler<blip_stopped_fn>? in
            defer { settings.stopped = handler }
            return settings.stopped
        }
        _ = consume old
    }

    // MARK: Life

    /// Where to listen.
    public enum Place: Sendable {
        case port(host: String, UInt16)
        case unix(String)
        /// Sockets that listen already; taken over if it succeeds.
        case descriptors([Int32])
        /// Nowhere: connections are given by `adopt`.
        case nowhere
    }

    /// Binds and begins to accept, there too if it listens already. On failure it may be tried again.
    public func start(_ place: Place) -> blip_status {
        guard !runtime.isStopped, let context = runtime.contexts.first else { return BLIP_ERROR_STOPPED }
        let given: [Int32] = if case .descriptors(let descriptors) = place { descriptors } else { [] }
        let isPossible = shared.withLock { shared -> Bool in
            guard shared.phase == .new || shared.phase == .listening,
                !given.contains(where: { shared.adopted.contains($0) })
            else { return false }
            // At once: another thread may give the same.
            shared.adopted += given
            return true
        }
        guard isPossible else { return BLIP_ERROR_STATE }
        var isStarted = false
        defer { if !isStarted, !given.isEmpty { shared.withLock { $0.adopted.removeAll { given.contains($0) } } } }
        if let setupFailure { return fail(setupFailure) }
        guard speaksBLIP1 || speaksWebSocket else {
            return fail(
                Failure(
                    BLIP_ERROR_ARGUMENT,
                    "The listener would speak nothing: both WebSocket and BLIP 1 are switched off."))
        }
        do {
            let (acceptor, places) = try open(place, context.loop)
            // Before the listener has it: from then on the loop may close it.
            acceptor?.onAccept = { [weak self] descriptor, peer in
                guard let self else { return closeDescriptor(descriptor) }
                self.accept(descriptor, peer)
            }
            acceptor?.onError = { [weak self] error in
                self?.runtime.log(BLIP_LOG_WARNING, "listener", error.text)
            }
            var isFirst = false
            isStarted = shared.withLock { shared -> Bool in
                guard shared.phase == .new || shared.phase == .listening else { return false }
                isFirst = shared.phase == .new
                shared.phase = .listening
                if let acceptor { shared.acceptors.append(acceptor) }
                shared.places += places
                return true
            }
            guard isStarted else {
                if !given.isEmpty { acceptor?.giveBack() }
                return BLIP_ERROR_STATE
            }
            if isFirst {
                runtime.add(self)
                // It may have been stopped meanwhile, and have left before it came.
                if shared.withLock({ $0.phase == .stopped }) { runtime.remove(self) }
            }
            // Between the look and now the runtime may have been stopped, and would not know of this one.
            defer { if runtime.isStopped { stop(graceful: false, timeout: 0) } }
            guard let acceptor else { return BLIP_OK }
            if context.loop.isCurrent { acceptor.start() } else { context.loop.post { acceptor.start() } }
            for place in places { runtime.log(BLIP_LOG_INFO, "listener", "listening on \(place.url.string)") }
            return BLIP_OK
        } catch {
            return fail(Failure(error))
        }
    }

    /// The sockets of a place, and what clients call them.
    private func open(
        _ place: Place, _ loop: EventLoop
    ) throws(TransportError) -> (acceptor: Acceptor?, places: [ListenerPlace]) {
        switch place {
        case .port(let host, let port):
            let acceptor = try Acceptor.bind(loop: loop, host: host, port: port)
            return (acceptor, [self.place(host, acceptor.port)])
        case .unix(let file):
            return (try Acceptor.bind(loop: loop, unixPath: file), [self.place(file)])
        case .descriptors(let descriptors):
            let acceptor = try Acceptor.adopt(loop: loop, descriptors: descriptors)
            let places = acceptor.addresses.map { address in
                address.path.map { self.place($0) } ?? self.place(address.host, address.port)
            }
            return (acceptor, places)
        case .nowhere: return (nil, [])
        }
    }

    private var scheme: String { (speaksWebSocket ? "ws" : "blip") + (configuration.tls == nil ? "" : "s") }
    private var firstPath: String { speaksWebSocket ? paths.first ?? "/" : "" }

    private func place(_ host: String, _ port: UInt16) -> ListenerPlace {
        ListenerPlace(port: port, url: Text("\(scheme)://\(Self.reachable(host)):\(port)\(firstPath)"))
    }

    private func place(_ file: String) -> ListenerPlace {
        ListenerPlace(port: 0, url: Text("\(scheme)+unix://\(PercentEncoding.encode(file.utf8))\(firstPath)"))
    }

    /// Starting failed: all is as before.
    func fail(_ failure: Failure) -> blip_status {
        let error = OwnedError(ErrorRecord(failure))
        let old = shared.withLock { shared -> OwnedError? in
            defer { shared.error = error }
            return shared.error
        }
        old?.end()
        return failure.status
    }

    var isListening: Bool { shared.withLock { $0.phase == .listening } }

    private func accept(_ descriptor: Int32, _ peer: SocketAddress) {
        let count = connections.add(1, ordering: .relaxed).newValue
        guard maximumConnections == 0 || count <= maximumConnections, let context = runtime.pickContext(),
            isListening
        else {
            connections.subtract(1, ordering: .relaxed)
            return closeDescriptor(descriptor)
        }
        if context.loop.isCurrent {
            Connection(context: context, listener: self).takeOver(descriptor, from: peer)
        } else if !context.loop.post({ Connection(context: context, listener: self).takeOver(descriptor, from: peer) })
        {
            connections.subtract(1, ordering: .relaxed)
            closeDescriptor(descriptor)
        }
    }

    /// Accepts a connection from this process; nil if it may not.
    func accept(_ end: PairEnd) -> Connection? {
        let count = connections.add(1, ordering: .relaxed).newValue
        guard maximumConnections == 0 || count <= maximumConnections, isListening, let context = runtime.context()
        else {
            connectionDidEnd()
            return nil
        }
        return Connection(context: context, listener: self, carrier: end)
    }

    /// Takes over a socket that is connected already, as if it had been accepted; a listener that was not started is
    /// started without listening anywhere. The descriptor stays the caller's on failure.
    public func adopt(_ descriptor: Int32) -> blip_status {
        guard AdoptedDescriptor.isConnected(descriptor) else { return BLIP_ERROR_ARGUMENT }
        if shared.withLock({ $0.phase == .new }) {
            let status = start(.nowhere)
            // Another thread may have been first.
            guard status == BLIP_OK || status == BLIP_ERROR_STATE else { return status }
        }
        guard isListening else { return runtime.isStopped ? BLIP_ERROR_STOPPED : BLIP_ERROR_STATE }
        let count = connections.add(1, ordering: .relaxed).newValue
        if maximumConnections > 0, count > maximumConnections {
            connectionDidEnd()
            return BLIP_ERROR_LIMIT
        }
        guard let context = runtime.pickContext(),
            context.loop.post({ Connection(context: context, listener: self).takeOver(descriptor) })
        else {
            connectionDidEnd()
            return BLIP_ERROR_STOPPED
        }
        return BLIP_OK
    }

    public func connectionDidEnd() {
        guard connections.subtract(1, ordering: .acquiringAndReleasing).newValue == 0 else { return }
        if shared.withLock({ $0.phase == .stopping }) { endStopping() }
    }

    /// Stops accepting; the connections close, gracefully or with 1001.
    @discardableResult
    public func stop(graceful: Bool, timeout: Int64) -> blip_status {
        let acceptors = shared.withLock { shared -> [Acceptor]? in
            guard shared.phase == .listening else { return nil }
            shared.phase = .stopping
            defer { shared.acceptors = [] }
            return shared.acceptors
        }
        guard let acceptors else { return BLIP_OK }
        // One reference of the count keeps it above zero until every loop was told.
        connections.add(1, ordering: .relaxed)
        let loops = Atomic<Int>(runtime.contexts.count)
        let left = Box(loops)
        for (index, context) in runtime.contexts.enumerated() {
            let work: @Sendable () -> Void = { [self] in
                if index == 0 { for acceptor in acceptors { acceptor.close() } }
                context.endPages(of: self)
                for connection in context.connections where connection.listener === self {
                    if graceful {
                        _ = connection.closeGracefully(timeout: timeout, code: 1001)
                    } else {
                        connection.beginClose(code: 1001, reason: [], nil)
                    }
                }
                if left.value.subtract(1, ordering: .acquiringAndReleasing).newValue == 0 { connectionDidEnd() }
            }
            if !context.loop.post(work) { work() }
        }
        return BLIP_OK
    }

    private func endStopping() {
        let waiters = shared.withLock { shared -> [Waiter]? in
            guard shared.phase == .stopping else { return nil }
            shared.phase = .stopped
            defer { shared.stopWaiters = [] }
            return shared.stopWaiters
        }
        guard let waiters else { return }
        let old = settings.withLock { settings -> Settings in
            defer { settings = Settings() }
            return settings
        }
        let handler = old.stopped
        if let handler {
            let event = Event(.stopped(handler), listener: self)
            if let queue = configuration.queue { _ = queue.push(event) } else { event.run() }
        } else {
            stoppedDidSettle()
        }
        for waiter in waiters { waiter.signal(BLIP_OK) }
        runtime.remove(self)
        runtime.objectDidEnd()
    }

    /// The stopped callback was run: the library's own reference to the handle ends.
    func stoppedDidSettle() {
        let old = shared.withLock { shared -> OpaquePointer? in
            guard !shared.hasEndedHandle else { return nil }
            shared.hasEndedHandle = true
            return handle
        }
        HandleTable.releaseOwn(old, as: Listener.self)
    }

    public func countProgramReferences(by change: Int) -> Int {
        programReferences.wrappingAdd(change, ordering: .acquiringAndReleasing).newValue
    }

    /// The program's last reference is gone.
    public func programReferencesDidEnd() {
        let wasNew = shared.withLock { shared -> Bool in
            guard shared.phase == .new else { return false }
            shared.phase = .stopped
            return true
        }
        if wasNew {
            let old = settings.withLock { settings -> Settings in
                defer { settings = Settings() }
                return settings
            }
            _ = consume old
            stoppedDidSettle()
            runtime.objectDidEnd()
        } else {
            stop(graceful: false, timeout: 0)
        }
    }

    public func waitStopped(timeout: Int64) -> blip_status {
        guard EventLoop.current == nil else { return BLIP_ERROR_WOULD_DEADLOCK }
        guard let context = runtime.contexts.first else { return BLIP_ERROR_STOPPED }
        let waiter = Waiter()
        let status = shared.withLock { shared -> blip_status? in
            switch shared.phase {
            case .new: return BLIP_ERROR_STATE
            case .stopped: return BLIP_OK
            default:
                shared.stopWaiters.append(waiter)
                return nil
            }
        }
        if let status { return status }
        if waiter.wait(timeout, in: context) != nil { return BLIP_OK }
        shared.withLock { $0.stopWaiters.removeAll { $0 === waiter } }
        return BLIP_ERROR_TIMEOUT
    }

    // MARK: What may be asked

    public func snapshot() -> CounterSnapshot { runtime.snapshot(of: self) }

    public var hasQueue: Bool { configuration.queue != nil }
    public var port: UInt16? { place(0).flatMap { $0.port == 0 ? nil : $0.port } }
    public var url: Text? { place(0)?.url }

    /// One of the places where it listens; nil: there are not so many.
    public func place(_ index: Int) -> ListenerPlace? {
        shared.withLock { $0.places.indices.contains(index) ? $0.places[index] : nil }
    }

    public var error: OpaquePointer? { shared.withLock { $0.error?.handle } }
    public var connectionCount: Int { max(0, connections.load(ordering: .relaxed)) }

    /// The host to name in a URL for a local client.
    private static func reachable(_ host: String) -> String {
        switch host {
        case "", "0.0.0.0": "127.0.0.1"
        case "::": "[::1]"
        default: host.contains(":") && !host.hasPrefix("[") ? "[\(host)]" : host
        }
    }
}
