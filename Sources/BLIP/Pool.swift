import BLIPProtocol
import CBLIP
import Synchronization
import Transport
import WebSocketProtocol

/// One open connection for each URL.
public final class Pool: SlotOwner, @unchecked Sendable {
    public static var handleKind: HandleKind { .pool }
    public var slot: UInt32 = 0

    private struct Entry {
        let connection: Connection
        /// The pool's reference, which keeps the connection open.
        let hold: OpaquePointer?
        /// The number of messages, either way, when it was last looked at, and since when it is that.
        var messages: UInt64 = 0
        var idleSince: UInt64
    }

    private struct Shared {
        var entries: [String: Entry] = [:]
        var attachments: [Attachment] = []
        var idleTimeout: UInt64 = 0
        var hasEnded = false
    }

    private let runtime: Runtime
    private let context: LoopContext
    private let plain: (configuration: Configuration, failure: Failure?)
    private let secure: (configuration: Configuration, failure: Failure?)
    private let shared = Locked(Shared())
    /// The loop's.
    private var timer: PoolTimer?

    public init(runtime: Runtime, options: ConnectionOptions?) throws(Failure) {
        guard !runtime.isStopped, let context = runtime.contexts.first else {
            throw Failure(BLIP_ERROR_STOPPED, "The runtime was stopped.")
        }
        self.runtime = runtime
        self.context = context
        plain = Configuration.make(options, for: try Self.parse("ws://localhost/"), in: runtime)
        secure = Configuration.make(options, for: try Self.parse("wss://localhost/"), in: runtime)
        runtime.objectDidBegin()
    }

    deinit { HandleTable.freeSlot(slot) }

    /// The program has let go of it.
    public func handleDidEnd() {
        let wasAlive = shared.withLock { shared -> Bool in
            defer { shared.hasEnded = true }
            return !shared.hasEnded
        }
        guard wasAlive else { return }
        closeAll(code: 1001, reason: [])
        context.loop.post { [self] in endTimer() }
        runtime.objectDidEnd()
    }

    // MARK: Connections

    /// What URLs that mean the same have in common.
    private static func key(_ url: WebSocketURL) -> String {
        // The description leaves out who logs in; connections of different users are different ones.
        "\(url.description)\u{0}\(url.user ?? "")\u{0}\(url.password ?? "")"
    }

    private static func parse(_ url: String) throws(Failure) -> WebSocketURL {
        switch WebSocketURL.parse(url) {
        case .success(let parsed): return parsed
        case .failure(let failure): throw Failure(BLIP_ERROR_URL, failure.description)
        }
    }

    /// The connection to a URL, with a reference for the program: the one that there is, or a new one that connects.
    public func connection(to url: String) throws(Failure) -> OpaquePointer? {
        let url = try Self.parse(url)
        let key = Self.key(url)
        if let existing = existing(key) { return existing }
        guard !runtime.isStopped, let place = runtime.pickContext() else {
            throw Failure(BLIP_ERROR_STOPPED, "The runtime was stopped.")
        }
        let (configuration, failure) = url.isSecure ? secure : plain
        let new = try Connection(context: place, url: url, configuration: configuration, setupFailure: failure)
        let observer = Module(observing: BLIP_OBSERVE_CLOSED) { [weak self] connection, _, _, _ in
            self?.remove(key, connection)
        }
        let entry = Entry(connection: new, hold: new.lendHandle(), idleSince: monotonicNanoseconds())
        let (winner, old) = shared.withLock { shared -> (OpaquePointer?, Entry?) in
            if let other = shared.entries[key], other.connection.state < BLIP_STATE_CLOSING {
                return (other.connection.lendHandle(), entry)
            }
            new.attach([Attachment(observer, .library)] + shared.attachments)
            return (new.lendHandle(), shared.entries.updateValue(entry, forKey: key))
        }
        // Another thread was first, or the old one is closing.
        if let old { HandleTable.release(old.hold, as: Connection.self) }
        if old?.connection !== new {
            _ = new.connect()
            context.loop.post { [self] in armTimer() }
        }
        return winner
    }

    private func existing(_ key: String) -> OpaquePointer? {
        shared.withLock { shared in
            guard let entry = shared.entries[key], entry.connection.state < BLIP_STATE_CLOSING else { return nil }
            return entry.connection.lendHandle()
        }
    }

    /// The connection to a URL, if there is one that is not closing.
    public func existingConnection(to url: String) throws(Failure) -> OpaquePointer? {
        existing(Self.key(try Self.parse(url)))
    }

    public var count: Int {
        shared.withLock { $0.entries.values.count { $0.connection.state < BLIP_STATE_CLOSING } }
    }

    /// Closes all connections.
    @discardableResult
    public func closeAll(code: UInt16, reason: [UInt8]) -> blip_status {
        guard WebSocketFrame.isValidCloseCode(code) else { return BLIP_ERROR_ARGUMENT }
        let entries = shared.withLock { shared -> [Entry] in
            defer { shared.entries = [:] }
            return Array(shared.entries.values)
        }
        for entry in entries {
            _ = entry.connection.close(code: code, reason: reason)
            HandleTable.release(entry.hold, as: Connection.self)
        }
        return BLIP_OK
    }

    private func remove(_ key: String, _ connection: Connection) {
        let old = shared.withLock { shared -> Entry? in
            guard shared.entries[key]?.connection === connection else { return nil }
            return shared.entries.removeValue(forKey: key)
        }
        if let old { HandleTable.release(old.hold, as: Connection.self) }
    }

    // MARK: Modules

    /// Registers a module with the connections that are made from now on.
    public func add(_ module: Module) -> blip_status {
        shared.withLock { shared in
            guard !shared.attachments.contains(where: { $0.module === module }) else { return BLIP_ERROR_STATE }
            shared.attachments.append(Attachment(module, .listener))
            return BLIP_OK
        }
    }

    // MARK: Idle connections

    /// After so many milliseconds without a message a connection that nobody else holds is closed; 0: never.
    public func setIdleTimeout(_ milliseconds: Int64) {
        shared.withLock { $0.idleTimeout = milliseconds > 0 ? nanoseconds(milliseconds) : 0 }
        context.loop.post { [self] in
            endTimer()
            armTimer()
        }
    }

    private func endTimer() {
        guard let timer else { return }
        context.loop.cancel(timer)
        timer.pool = nil
        self.timer = nil
    }

    private func armTimer() {
        let (timeout, isEmpty, hasEnded) = shared.withLock { ($0.idleTimeout, $0.entries.isEmpty, $0.hasEnded) }
        guard timeout > 0, timeout < UInt64.max / 2, !isEmpty, !hasEnded, timer == nil else { return }
        let new = PoolTimer(self)
        timer = new
        context.loop.schedule(new, at: context.loop.refreshNow() &+ max(timeout / 4, 1_000_000))
    }

    func timerDidFire() {
        endTimer()
        let now = context.loop.refreshNow()
        let idle = shared.withLock { shared -> [Entry] in
            var idle: [Entry] = []
            for (key, entry) in shared.entries {
                let counters = entry.connection.readCounters()
                let messages =
                    (counters[BLIP_COUNTER_MESSAGES_SENT] ?? 0) &+ (counters[BLIP_COUNTER_MESSAGES_RECEIVED] ?? 0)
                let isInUse =
                    messages != entry.messages || !entry.connection.isHeldOnce
                    || entry.connection.state != BLIP_STATE_OPEN || entry.connection.isActive
                if isInUse {
                    shared.entries[key]?.messages = messages
                    shared.entries[key]?.idleSince = now
                } else if now &- entry.idleSince >= shared.idleTimeout {
                    idle.append(entry)
                    shared.entries[key] = nil
                }
            }
            return idle
        }
        for entry in idle {
            _ = entry.connection.close(code: 1000, reason: [])
            HandleTable.release(entry.hold, as: Connection.self)
        }
        armTimer()
    }
}
