import BLIPProtocol

/// The counters of one connection: under the lock of the loop's connections, except for what is the loop's.
final class CounterRecord: @unchecked Sendable {
    var current = ConnectionCounters()
    /// The round trips, until there is a table of them.
    private var few = FewRoundTrips()
    /// Set under the lock.
    private(set) var histogram: RoundTripHistogram?
    /// Where it stands among its loop's changed ones; −1: nothing has changed since it was added up.
    var indexInChanged: Int32 = -1
    /// Sums of the listener that has accepted the connection.
    let listenerTotals: CounterTotals?

    // The loop's.
    var isSendingPaused = false
    /// Where the engine goes on, of a connection that has given up its session.
    var rest: EngineRest?
    private(set) var existingExtras: CounterExtras?
    /// Bytes of streamed messages that wait to be read.
    var streamedBytes = 0
    /// What the runtime's budget knows of.
    var reportedBytes = 0
    /// Made when the program keeps a message that is not small.
    var memory: IncomingMemory?

    init(listenerTotals: CounterTotals?) { self.listenerTotals = listenerTotals }

    /// Made when they are used.
    var extras: CounterExtras {
        if let existingExtras { return existingExtras }
        let new = CounterExtras()
        existingExtras = new
        return new
    }

    /// One more round trip of a connection without a table of them; if there is no room left, makes the table.
    func countRoundTrip(_ nanoseconds: UInt64) {
        guard !few.record(nanoseconds) else { return }
        let table = RoundTripHistogram(few.read())
        RoundTripHistogram.record(nanoseconds, in: table.counts)
        histogram = table
    }

    var roundTrips: RoundTrips { histogram?.read() ?? few.read() }

    /// Adds what has changed to the sums.
    func fold(since old: ConnectionCounters, into totals: CounterTotals) {
        totals.counters.add(current, since: old)
        listenerTotals?.counters.add(current, since: old)
    }
}
