import BLIPProtocol
import CBLIP
import Synchronization
import Transport

/// What received messages hold in memory: parts of unfinished ones in the engine, unread parts of streamed ones, whole
/// ones that the program keeps, and a little for each request that has no answer.
extension Connection {
    /// What a request that waits for its answer costs at least.
    private static let unansweredCost = 1024
    /// Less than this is not looked at: a turn cannot make much of it.
    private static let slack = 64 << 10

    @inline(__always)
    private var hasMemoryLimit: Bool { context.hasMemoryLimit }

    /// Memory outside of the engine. Loop thread.
    @inline(__always)
    private func outsideBytes(_ record: Unmanaged<CounterRecord>) -> Int {
        record._withUnsafeGuaranteedRef { record in
            let own = record.streamedBytes &+ max(0, unanswered) &* Self.unansweredCost
            return record.memory == nil ? own : own &+ keptBytes(record)
        }
    }

    @inline(never)
    private func keptBytes(_ record: CounterRecord) -> Int { record.memory?.held ?? 0 }

    /// All of it. Loop thread.
    @inline(__always)
    func incomingBytes(_ session: Session) -> Int { session.engine.heldBytes &+ outsideBytes(session.uncountedRecord) }

    /// Tells the engine how much may come. Before each turn of input.
    @inline(__always)
    func limitMemory(_ session: Session) {
        if hasMemoryLimit || session.engine.isTight || outsideBytes(session.uncountedRecord) > Self.slack {
            adjustMemoryLimit(session)
        }
    }

    @inline(never)
    private func adjustMemoryLimit(_ session: Session) {
        var limit = configuration.limits.unfinishedBytes &- outsideBytes(session.uncountedRecord)
        let whole = runtimeHold.memoryLimit
        if whole > 0 { limit = min(limit, session.engine.heldBytes &+ max(0, whole &- runtimeHold.memoryUsed)) }
        session.engine.limitHeldBytes(to: limit)
    }

    /// Tells the runtime, if it has a budget, what has changed. After each turn.
    @inline(__always)
    func reportMemory(_ session: Session) {
        if hasMemoryLimit { reportMemory(session.record, session.engine.heldBytes) }
    }

    @inline(never)
    private func reportMemory(_ record: CounterRecord, _ held: Int) {
        let now = held &+ record.streamedBytes &+ max(0, unanswered) &* Self.unansweredCost
        let change = now &- record.reportedBytes
        guard change != 0 else { return }
        record.reportedBytes = now
        context.countMemory(change)
    }

    /// The connection has ended: what the program keeps is counted by itself.
    func endMemory() {
        guard let record = session?.record, record.reportedBytes != 0 else { return }
        context.countMemory(-record.reportedBytes)
        record.reportedBytes = 0
    }

    /// The program keeps a message that the loop is done with. Loop thread.
    @inline(never)
    func countKept(_ message: BLIPMessage, _ bytes: Int) {
        guard let record = session?.record, bytes >= IncomingMemory.least, message.memory == nil else { return }
        let memory = record.memory ?? IncomingMemory(runtime: runtimeHold)
        record.memory = memory
        message.memory = memory
        message.memoryCounted = bytes
        memory.add(bytes)
    }

    /// Nothing more comes of a streamed message: what is unread of it counts as long as the program keeps it.
    func settleMemory(of message: BLIPMessage, _ body: IncomingBody) {
        let (counted, held) = body.endCounting()
        session?.record.streamedBytes &-= counted
        countKept(message, held)
    }
}
