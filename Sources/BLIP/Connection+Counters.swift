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
            if (paused > 0) != (record.sendingPausedSince > 0) { sendingDidPause(record, paused > 0) }
            reportMemory(session)
            let memory = incomingBytes(session)
            let waiting = backlog.load(ordering: .relaxed)
            // Straight into the record: this is done in each turn.
            withInfo { _ in
                record.current.engine = engine.counters
                record.current.bytesSent = sent
                record.current.bytesReceived = received
                record.current.errorsSent = record.errorsSent
                record.current.errorsReceived = record.errorsReceived
                record.current.readingPaused = record.readingPaused
                record.current.sendingPaused = record.sendingPaused
                record.current.requestsPending = Self.level(engine.pendingRequests)
                record.current.requestsUnanswered = Self.level(unanswered)
                record.current.messagesQueued = Self.level(engine.queuedMessages)
                record.current.messagesPaused = Self.level(paused)
                record.current.messagesUnfinished = Self.level(engine.unfinishedIncoming)
                record.current.memory = Self.level(memory)
                record.current.backlog = Self.level(waiting)
                context.note(record)
            }
        }
    }

    @inline(__always)
    private static func level(_ number: Int) -> UInt64 { UInt64(max(0, number)) }

    @inline(never)
    private func sendingDidPause(_ record: CounterRecord, _ isPaused: Bool) {
        let now = max(1, loop.now)
        if isPaused {
            record.sendingPausedSince = now
        } else {
            record.sendingPaused &+= now &- record.sendingPausedSince
            record.sendingPausedSince = 0
        }
    }

    /// Reading stops because the program's queue is full, or goes on.
    func readingDidPause(_ isPaused: Bool) {
        guard let record = session?.record else { return }
        let now = max(1, loop.now)
        if isPaused {
            record.readingPausedSince = now
        } else if record.readingPausedSince > 0 {
            record.readingPaused &+= now &- record.readingPausedSince
            record.readingPausedSince = 0
        }
    }

    /// A request of ours has its response.
    @inline(__always)
    func countRoundTrip(of request: BLIPMessage, _ response: BLIPMessage, _ session: Session) {
        if response.kind == .error { countErrorReceived(session) }
        RoundTripHistogram.record(
            loop.now &- request.sentAt, in: session.roundTripCounts ?? makeHistogram(session))
    }

    // Off the path of those that are no errors.
    @inline(never)
    func countErrorSent(_ session: Session) { session.record.errorsSent &+= 1 }

    @inline(never)
    private func countErrorReceived(_ session: Session) { session.record.errorsReceived &+= 1 }

    @inline(never)
    private func makeHistogram(_ session: Session) -> UnsafeMutablePointer<Atomic<UInt64>> {
        let histogram = RoundTripHistogram()
        let record = session.record
        withInfo { _ in record.setHistogram(histogram) }
        session.roundTripCounts = histogram.counts
        return histogram.counts
    }

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
                record.current.clearLevels()
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
