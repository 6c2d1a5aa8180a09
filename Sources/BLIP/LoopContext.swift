import BLIPProtocol
import CBLIP
import Synchronization
import Transport
import WebSocketProtocol

/// What the connections of one loop share: messages to use again, mask keys, the list of who is alive.
public final class LoopContext: @unchecked Sendable {
    public let loop: EventLoop
    /// Guards `ConnectionInfo` of all its connections: it is held for moments, and a lock each would weigh too much.
    let infoLock = Locked(())
    unowned let runtime: Runtime
    let index: Int
    /// The runtime has a budget for received messages.
    let hasMemoryLimit: Bool
    var maskKeys: MaskKeyGenerator
    private var pool = MessageList()
    private var finished = MessageList()
    private(set) var connections: [Connection] = []
    private var lastSerial: UInt32 = 0
    /// Connections that speak HTTP alone.
    private var pages: [ObjectIdentifier: HTTPConnection] = [:]

    /// The message that an interceptor looks at now, and may change.
    var intercepted: UnsafeMutableRawPointer?
    /// Made with the first connection without a stream that is used.
    private(set) lazy var frameSessions = FrameSessions()

    private var drainWaiter: Waiter?

    /// Sums over all connections that the loop ever had; with `changed`, under `infoLock`.
    let totals = CounterTotals()
    private var changed: [ChangedRecord] = []
    /// So many are kept apart: what the sums know of each takes more memory than adding up costs time.
    private static let changedLimit = 512

    #if BLIP_NO_POOL
        // For sanitizers, which see uses after free only if messages are freed.
        private static let poolLimit = 0
    #else
        private static let poolLimit = 4096
    #endif

    init(loop: EventLoop, runtime: Runtime, index: Int) {
        self.index = index
        hasMemoryLimit = runtime.memoryLimit > 0
        self.loop = loop
        self.runtime = runtime
        maskKeys = Randomness.bytes(32).withUnsafeBytes { MaskKeyGenerator(entropy: $0) }
        loop.attachment = UnsafeRawPointer(Unmanaged.passUnretained(self).toOpaque())
    }

    /// On the loop's thread, or when that has ended.
    deinit { loop.attachment = nil }

    // MARK: Messages

    /// A fresh message; an old one where possible. Loop thread only.
    @inline(__always)
    func makeMessage() -> BLIPMessage { pool.pop() ?? BLIPMessage() }

    /// The library is done with a message; `reclaim` uses it again if the program is done with it too. Loop thread only.
    @inline(__always)
    func recycle(_ message: consuming BLIPMessage) { finished.push(consume message) }

    /// Takes the finished messages that nobody else holds into the pool. To be called where no finished message is in
    /// use by a caller.
    @inline(__always)
    func reclaim() {
        while var message = finished.pop() {
            guard isKnownUniquelyReferenced(&message) else {
                programKeeps(message)
                continue
            }
            guard pool.count < Self.poolLimit else { continue }
            // What the last other holder did to it must be seen before it is used again.
            atomicMemoryFence(ordering: .acquiring)
            message.recycle(keeping: Self.memoryKept(by: pool.count))
            pool.push(message)
        }
    }

    /// How much memory each buffer of the next message in the pool may keep. Those that go in last come out first, and the
    /// many that only a burst needs keep little.
    @inline(__always)
    private static func memoryKept(by count: Int) -> Int { count < 1024 ? 4 << 10 : 256 }

    @inline(never)
    private func programKeeps(_ message: BLIPMessage) {
        let size = message.memorySize
        if size >= IncomingMemory.least, message.isIncoming { message.connection?.countKept(message, size) }
    }

    /// A fresh message for the program: an old one on a loop's thread, a new one elsewhere.
    @inline(__always)
    public static func newMessage() -> BLIPMessage {
        guard let context = EventLoop.currentAttachment else { return BLIPMessage() }
        return Unmanaged<LoopContext>.fromOpaque(context)._withUnsafeGuaranteedRef { $0.makeMessage() }
    }

    // MARK: Memory of received messages

    private var uncountedMemory = 0

    /// Counts towards the runtime's budget, a heap of changes at a time. Loop thread only.
    func countMemory(_ change: Int) {
        uncountedMemory &+= change
        guard abs(uncountedMemory) >= 64 << 10 else { return }
        runtime.countMemory(uncountedMemory)
        uncountedMemory = 0
    }

    // MARK: Counters, under `infoLock`

    /// To be called before the record's counters become other than what the sums know.
    @inline(__always)
    func note(_ record: CounterRecord) {
        if record.indexInChanged < 0 { addToChanged(record) }
    }

    @inline(never)
    private func addToChanged(_ record: CounterRecord) {
        if changed.count >= Self.changedLimit { foldChanged() }
        record.indexInChanged = Int32(changed.count)
        changed.append(ChangedRecord(record: record, known: record.current))
    }

    /// The connection has ended: adds its last figures up, with no levels, and forgets it.
    func settle(_ record: CounterRecord) {
        note(record)
        record.current.clearLevels()
        let index = Int(record.indexInChanged)
        guard changed.indices.contains(index) else { return }
        record.fold(since: changed[index].known, into: totals)
        record.indexInChanged = -1
        let last = changed.removeLast()
        if last.record !== record {
            changed[index] = last
            last.record.indexInChanged = Int32(index)
        }
    }

    /// Brings the sums up to what the connections have published.
    func foldChanged() {
        for one in changed {
            one.record.fold(since: one.known, into: totals)
            one.record.indexInChanged = -1
        }
        changed.removeAll(keepingCapacity: true)
    }

    /// Whether an interceptor looks at the message now, on the calling thread.
    static func isIntercepted(_ message: BLIPMessage) -> Bool {
        guard let context = EventLoop.currentAttachment else { return false }
        return Unmanaged<LoopContext>.fromOpaque(context)._withUnsafeGuaranteedRef {
            $0.intercepted == Unmanaged.passUnretained(message).toOpaque()
        }
    }

    // MARK: Connections

    func add(_ connection: Connection) {
        guard connection.indexInContext < 0 else { return }
        lastSerial &+= 1
        connection.serial = lastSerial
        connection.indexInContext = connections.count
        connections.append(connection)
    }

    func remove(_ connection: Connection) {
        let index = connection.indexInContext
        guard index >= 0, index < connections.count else { return }
        connection.indexInContext = -1
        let last = connections.removeLast()
        if last !== connection {
            connections[index] = last
            last.indexInContext = index
        }
        if connections.isEmpty, let waiter = drainWaiter {
            drainWaiter = nil
            waiter.signal(BLIP_OK)
        }
    }

    // MARK: HTTP

    func add(_ page: HTTPConnection) { pages[ObjectIdentifier(page)] = page }
    func remove(_ page: HTTPConnection) { pages[ObjectIdentifier(page)] = nil }

    /// Ends the HTTP connections of a listener, or all.
    func endPages(of listener: Listener? = nil) {
        for page in Array(pages.values) where listener == nil || page.belongs(to: listener) { page.end() }
    }

    /// Signals once no connection is left.
    func drain(_ waiter: Waiter) {
        if connections.isEmpty { waiter.signal(BLIP_OK) } else { drainWaiter = waiter }
    }
}
