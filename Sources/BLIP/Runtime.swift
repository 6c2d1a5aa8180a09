import CBLIP
import CSystem
import Glibc
import Synchronization
import Transport
import WebSocketProtocol

/// A set of event loops with everything that runs on them.
public final class Runtime: SlotOwner, @unchecked Sendable {
    public static var handleKind: HandleKind { .runtime }
    public var slot: UInt32 = 0

    public let threadCount: Int
    /// What received messages of all connections may hold, in bytes; 0: no limit.
    let memoryLimit: Int
    private let countedMemory = Atomic<Int>(0)
    let queue: EventQueue?
    private(set) var contexts: [LoopContext] = []
    private let nextContext = Atomic<Int>(0)
    private let stopped = Atomic<Bool>(false)
    private let logLevel = Atomic<Int32>(0)
    private let logTarget = Locked<LogTarget?>(nil)
    private let listeners = Locked<[ObjectIdentifier: Listener]>([:])
    /// What else has to be told when the runtime stops.
    private let dependents = Locked<[ObjectIdentifier: any RuntimeDependent]>([:])
    private let registered = Locked<[Attachment]>([])
    private let hasModules = Atomic<Bool>(false)
    /// Connections and listeners that have not ended: what keeps the runtime's threads.
    private let liveObjects = Atomic<Int>(0)
    private let hasEnded = Atomic<Bool>(false)
    /// Of all connections that want it.
    private let cookies = Locked(CookieJar())

    public init(threads: Int, queue: EventQueue?, memoryLimit: Int = 0) throws(TransportError) {
        threadCount = threads
        self.memoryLimit = memoryLimit
        self.queue = queue
        for index in 0..<max(threads, 1) {
            contexts.append(LoopContext(loop: try EventLoop(), runtime: self, index: index))
        }
        guard threads > 0 else { return }
        for (index, context) in contexts.enumerated() {
            do {
                try context.loop.startThread(name: "blip-\(index)", keeping: context)
            } catch {
                for started in contexts[..<index] {
                    started.loop.stop()
                    started.loop.join()
                }
                throw error
            }
        }
    }

    deinit { HandleTable.freeSlot(slot) }

    // MARK: The shared one

    private static let sharedOne = Locked<(runtime: Runtime, handle: OpaquePointer?, epoch: UInt64)?>(nil)

    /// The runtime that is used where none is given: one thread, made on first use, never stopped by the library.
    public static func shared() -> (Runtime, OpaquePointer?)? {
        sharedOne.withLock { entry in
            if let entry, entry.epoch == HandleTable.epoch, !entry.runtime.isStopped {
                return (entry.runtime, entry.handle)
            }
            if let entry, entry.epoch != HandleTable.epoch {
                // The parent's threads do not exist here: the object is left alone for ever.
                _ = Unmanaged.passRetained(entry.runtime)
            }
            guard let runtime = try? Runtime(threads: 1, queue: nil) else { return nil }
            let handle = HandleTable.create(runtime)
            entry = (runtime, handle, HandleTable.epoch)
            return (runtime, handle)
        }
    }

    // MARK: Memory of received messages

    func countMemory(_ change: Int) { countedMemory.add(change, ordering: .relaxed) }

    var memoryUsed: Int { countedMemory.load(ordering: .relaxed) }

    // MARK: Loops

    public var isStopped: Bool { stopped.load(ordering: .acquiring) }

    /// The loop of the next connection: the current one if it is ours and the only choice, else in turn.
    func pickContext() -> LoopContext? {
        guard contexts.count > 1 else { return contexts.first }
        let turn = nextContext.wrappingAdd(1, ordering: .relaxed).oldValue
        return contexts[Int(UInt(bitPattern: turn) % UInt(contexts.count))]
    }

    /// The descriptor of a runtime without threads; nil for others.
    public var descriptor: Int32? { threadCount == 0 ? contexts.first?.loop.descriptor : nil }

    public func runOnce(timeout: Int64) -> (status: blip_status, count: Int) {
        guard threadCount == 0, let context = contexts.first else { return (BLIP_ERROR_STATE, 0) }
        guard EventLoop.current == nil else { return (BLIP_ERROR_WOULD_DEADLOCK, 0) }
        return (BLIP_OK, context.loop.runOnce(timeout: timeout))
    }

    /// The same; nil once the runtime was stopped.
    func context() -> LoopContext? { isStopped ? nil : pickContext() }

    private let configuration = Locked<Configuration?>(nil)

    /// What connections without options of their own and without TLS share.
    var defaultConfiguration: Configuration {
        configuration.withLock { known in
            if let known { return known }
            let new = Configuration(ConnectionOptions(), queue: queue, tls: nil)
            known = new
            return new
        }
    }

    // MARK: Life

    /// A connection or listener exists that needs the threads.
    func objectDidBegin() { liveObjects.add(1, ordering: .relaxed) }

    func add(_ listener: Listener) { listeners.withLock { $0[ObjectIdentifier(listener)] = listener } }

    var liveListeners: [Listener] {
        listeners.withLock { Array($0.values) }.sorted { $0.port ?? 0 < $1.port ?? 0 }
    }

    func remove(_ listener: Listener) {
        let old = listeners.withLock { $0.removeValue(forKey: ObjectIdentifier(listener)) }
        _ = consume old
    }

    func add(_ dependent: any RuntimeDependent) { dependents.withLock { $0[ObjectIdentifier(dependent)] = dependent } }

    func remove(_ dependent: any RuntimeDependent) {
        let old = dependents.withLock { $0.removeValue(forKey: ObjectIdentifier(dependent)) }
        _ = consume old
    }

    func objectDidEnd() {
        if liveObjects.subtract(1, ordering: .sequentiallyConsistent).newValue == 0,
            hasEnded.load(ordering: .sequentiallyConsistent)
        {
            endThreads()
        }
    }

    /// The program's last reference is gone: the threads end when nothing lives on them.
    public func handleDidEnd() {
        hasEnded.store(true, ordering: .sequentiallyConsistent)
        if liveObjects.load(ordering: .sequentiallyConsistent) == 0 { endThreads() }
    }

    private func endThreads() {
        guard !stopped.exchange(true, ordering: .acquiringAndReleasing) else { return }
        for context in contexts { context.loop.stop() }
        // The threads hold their loops; nobody waits for them.
    }

    /// Closes everything, completes everything and ends the threads.
    public func stop(timeout: Int64) -> blip_status {
        guard EventLoop.current == nil else { return BLIP_ERROR_WOULD_DEADLOCK }
        guard !stopped.exchange(true, ordering: .acquiringAndReleasing) else { return BLIP_OK }
        for dependent in dependents.withLock({ Array($0.values) }) { dependent.runtimeWillStop() }
        for listener in listeners.withLock({ Array($0.values) }) { listener.stop(graceful: false, timeout: 0) }
        let failure = Failure(BLIP_ERROR_STOPPED, "The runtime was stopped.")
        var waiters: [(Waiter, LoopContext)] = []
        for context in contexts {
            let waiter = Waiter()
            context.loop.post {
                context.endPages()
                for connection in context.connections { connection.beginClose(code: 1001, reason: [], failure) }
                context.drain(waiter)
            }
            waiters.append((waiter, context))
        }
        var status = BLIP_OK
        let start = monotonicNanoseconds()
        for (waiter, context) in waiters {
            let elapsed = Int64((monotonicNanoseconds() - start) / 1_000_000)
            let left = timeout < 0 ? -1 : max(0, timeout - elapsed)
            if waiter.wait(left, in: context) == nil { status = BLIP_ERROR_TIMEOUT }
        }
        for context in contexts {
            context.loop.post { for connection in context.connections { connection.finish(failure) } }
            context.loop.stop()
        }
        if threadCount > 0 {
            for context in contexts { context.loop.join() }
        } else {
            for context in contexts { _ = context.loop.runOnce(timeout: 0) }
        }
        return status
    }

    // MARK: Modules

    /// What each connection takes part in; nil if nothing is registered.
    var attachments: [Attachment]? {
        hasModules.load(ordering: .relaxed) ? registered.withLock { $0 } : nil
    }

    /// Registers a module with every connection, those that exist included.
    public func add(_ module: Module) -> blip_status {
        guard !isStopped else { return BLIP_ERROR_STOPPED }
        let attachment = Attachment(module, .runtime)
        let isNew = registered.withLock { list -> Bool in
            guard !list.contains(where: { $0.module === module }) else { return false }
            list.append(attachment)
            hasModules.store(true, ordering: .relaxed)
            return true
        }
        guard isNew else { return BLIP_ERROR_STATE }
        onConnections { $0.attach([attachment]) }
        return BLIP_OK
    }

    public func remove(_ module: Module) -> blip_status {
        let attachment = registered.withLock { list -> Attachment? in
            guard let index = list.firstIndex(where: { $0.module === module }) else { return nil }
            defer { hasModules.store(!list.isEmpty, ordering: .relaxed) }
            return list.remove(at: index)
        }
        guard let attachment else { return BLIP_ERROR_NOT_FOUND }
        attachment.remove()
        onConnections { $0.detach(attachment) }
        return BLIP_OK
    }

    public var modules: [Module] { registered.withLock { $0.map(\.module) } }

    /// Does something with every connection, on its loop; at once with those of the calling thread's loop.
    func onConnections(_ body: @escaping @Sendable (Connection) -> Void) {
        for context in contexts {
            let work: @Sendable () -> Void = { for connection in context.connections { body(connection) } }
            if context.loop.isCurrent { work() } else { context.loop.post(work) }
        }
    }

    // MARK: Cookies, from any thread

    /// The wall clock; the dates of cookies are made by it.
    private static var wallSeconds: Int64 { Int64(Glibc.time(nil)) }

    /// The value of a Cookie header.
    func cookies(for url: WebSocketURL) -> SecretBytes? {
        cookies.withLock { $0.header(for: url, now: Self.wallSeconds) }
    }

    /// Takes what an answer sets; whether anything has changed.
    func receiveCookies(_ response: HTTPResponseHead, from url: WebSocketURL) -> Bool {
        guard response["Set-Cookie"] != nil else { return false }
        return cookies.withLock { $0.receive(response, from: url, now: Self.wallSeconds) }
    }

    /// Sets a cookie for the program.
    public func setCookie(_ line: String, for url: String) -> blip_status {
        guard case .success(let url) = WebSocketURL.parse(url) else { return BLIP_ERROR_URL }
        let isGood = cookies.withLock { jar in
            let now = Self.wallSeconds
            // Removing what is not there is no mistake.
            return jar.set(line, from: url, now: now) || CookieJar.isRemoval(line, from: url, now: now)
        }
        return isGood ? BLIP_OK : BLIP_ERROR_ARGUMENT
    }

    /// Copies the cookies for a URL; `put` is given them, and says whether they fit.
    public func cookies(for url: String, _ put: (UnsafeRawBufferPointer) -> blip_status) -> blip_status {
        guard case .success(let url) = WebSocketURL.parse(url) else { return BLIP_ERROR_URL }
        guard let cookies = cookies(for: url) else { return BLIP_ERROR_NOT_FOUND }
        return put(cookies.bytes)
    }

    public func clearCookies() { cookies.withLock { $0.removeAll() } }

    // MARK: Log

    /// Who takes the log from now on: the function, on whatever thread there is something to say, or a queue.
    public func setLog(_ level: Int32, _ handler: Handler<blip_log_fn>, queue: EventQueue? = nil) {
        let isWanted = level > 0 && (handler.function != nil || queue != nil)
        let old = logTarget.withLock { current -> LogTarget? in
            defer { current = isWanted ? LogTarget(handler: handler, queue: queue) : nil }
            return current
        }
        _ = consume old
        logLevel.store(isWanted ? level : 0, ordering: .releasing)
    }

    /// Tells who takes the log; the text is made only if it is wanted.
    func log(_ level: Int32, _ domain: StaticString, _ text: @autoclosure () -> String) {
        guard level <= logLevel.load(ordering: .relaxed), let target = logTarget.withLock({ $0 }) else { return }
        target.take(level, domain, text())
    }

    /// Makes handles of this process invalid in its forked children. Called once, before the first handle.
    public static let forkGuard: Void = {
        _ = sharedOne
        // OpenSSL first: what is registered last runs first at exit.
        TLSContext.prepare()
        csystem_guard_exit()
        // What a child may lock must not be locked by a thread that does not exist there.
        pthread_atfork(
            {
                Runtime.sharedOne.lock()
                HandleTable.lock()
            },
            {
                HandleTable.unlock()
                Runtime.sharedOne.unlock()
            },
            {
                HandleTable.unlock()
                Runtime.sharedOne.unlock()
                HandleTable.processDidFork()
                csystem_set_current_loop(nil)
                csystem_take_back(csystem_lent())
            })
        csystem_guard_fork()
    }()
}
