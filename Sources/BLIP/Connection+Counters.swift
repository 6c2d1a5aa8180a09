import BLIPProtocol
import CBLIP
import Synchronization
import Transport

extension Connection {
    // MARK: On the loop

    /// Puts the figures where other threads read them together.
    @inline(__always)
    func publishCounters(_ session: Session, _ stream: Transport.Stream) {
        publishCounters(session, sent: stream.bytesSent, received: stream.bytesReceived)
    }

    func publishCounters(_ session: Session, sent: UInt64, received: UInt64) {
        let engine = session.engine
        session.uncountedRecord._withUnsafeGuaranteedRef { record in
            let paused = engine.pausedMessages
            if (paused > 0) != record.isSendingPaused { sendingDidPause(record, paused > 0) }
            reportMemory(session)
            let memory = incomingBytes(session)
            let waiting = backlog.load(ordering: .relaxed)
            // Straight into the record: this is done in each turn.
            withInfo { _ in
                context.note(record)
                record.current.engine = engine.counters
                record.current.bytesSent = sent
                record.current.bytesReceived = received
                record.current.requestsPending = Self.level(engine.pendingRequests)
                record.current.requestsUnanswered = Self.level(unanswered)
                record.current.messagesQueued = Self.level(engine.queuedMessages)
                record.current.messagesPaused = Self.level(paused)
                record.current.messagesUnfinished = Self.level(engine.unfinishedIncoming)
                record.current.memory = Self.level(memory)
                record.current.backlog = Self.level(waiting)
                if record.existingExtras != nil { Self.publishExtras(record) }
            }
        }
    }

    @inline(never)
    private static func publishExtras(_ record: CounterRecord) {
        let extras = record.extras
        record.current.errorsSent = extras.errorsSent
        record.current.errorsReceived = extras.errorsReceived
        record.current.readingPaused = extras.readingPaused
        record.current.sendingPaused = extras.sendingPaused
    }

    @inline(__always)
    private static func level(_ number: Int) -> UInt64 { UInt64(max(0, number)) }

    @inline(never)
    private func sendingDidPause(_ record: CounterRecord, _ isPaused: Bool) {
        let now = max(1, loop.now)
        record.isSendingPaused = isPaused
        let extras = record.extras
        if isPaused {
            extras.sendingPausedSince = now
        } else {
            extras.sendingPaused &+= now &- extras.sendingPausedSince
            extras.sendingPausedSince = 0
        }
    }

    /// Reading stops because the program's queue is full, or goes on.
    func readingDidPause(_ isPaused: Bool) {
        guard let extras = session?.record.extras else { return }
        let now = max(1, loop.now)
        if isPaused {
            extras.readingPausedSince = now
        } else if extras.readingPausedSince > 0 {
            extras.readingPaused &+= now &- extras.readingPausedSince
            extras.readingPausedSince = 0
        }
    }

    /// A request of ours has its response.
    @inline(__always)
    func countRoundTrip(of request: BLIPMessage, _ response: BLIPMessage, _ session: Session) {
        if response.kind == .error { countErrorReceived(session) }
        let time = loop.now &- request.sentAt
        RoundTripHistogram.record(time, in: context.totals.roundTrips.counts)
        guard let table = session.roundTripCounts else { return countRoundTrip(time, session) }
        RoundTripHistogram.record(time, in: table)
        if let ofListener = session.listenerRoundTripCounts { RoundTripHistogram.record(time, in: ofListener) }
    }

    @inline(never)
    private func countRoundTrip(_ time: UInt64, _ session: Session) {
        if let ofListener = session.listenerRoundTripCounts { RoundTripHistogram.record(time, in: ofListener) }
        let record = session.record
        withInfo { _ in record.countRoundTrip(time) }
        session.roundTripCounts = record.histogram?.counts
    }

    // Off the path of those that are no errors.
    @inline(never)
    func countErrorSent(_ session: Session) { session.record.extras.errorsSent &+= 1 }

    @inline(never)
    private func countErrorReceived(_ session: Session) { session.record.extras.errorsReceived &+= 1 }

    func countOpening() {
        guard !isInternal else { return }
        let totals = listener?.totals(of: context)
        withInfo { _ in
            for totals in [context.totals, totals] {
                totals?.counters.connections &+= 1
                totals?.counters.connectionsOpened &+= 1
            }
        }
    }

    /// The connection has ended: its last figures, and no levels.
    func endCounters(wasIdle: Bool) {
        if let session { publishCounters(session) }
        endMemory()
        // Nothing that could let go of the listener may happen under the lock.
        let totals = listener?.totals(of: context)
        withInfo { info in
            if let record = info.record {
                context.settle(record)
            }
            for totals in [context.totals, totals] where !isInternal {
                if info.version != 0 {
                    totals?.counters.connections &-= 1
                } else if !wasIdle {
                    totals?.counters.connectionsFailed &+= 1
                }
            }
        }
    }

    // MARK: From any thread

    /// The figures, all of one moment.
    public func readCounters() -> ConnectionCounters { readAll().counters }

    public func snapshot() -> CounterSnapshot {
        let (counters, roundTrips) = readAll()
        return CounterSnapshot(counters, roundTrips)
    }

    private func readAll() -> (counters: ConnectionCounters, roundTrips: RoundTrips) {
        if loop.isCurrent, let session { publishCounters(session) }
        // Before BLIP is spoken only the transport has figures, for the loop alone.
        let early = loop.isCurrent && session == nil ? stream : nil
        let state = state
        return withInfo { info in
            var counters = info.record?.current ?? ConnectionCounters()
            if let early {
                counters.bytesSent = early.bytesSent
                counters.bytesReceived = early.bytesReceived
            }
            counters.backlog = backlogBytes
            let wasOpen = info.version != 0
            counters.connections = state == BLIP_STATE_OPEN ? 1 : 0
            counters.connectionsOpened = wasOpen ? 1 : 0
            counters.connectionsFailed = state == BLIP_STATE_CLOSED && !wasOpen ? 1 : 0
            return (counters, info.record?.roundTrips ?? RoundTrips())
        }
    }
}
