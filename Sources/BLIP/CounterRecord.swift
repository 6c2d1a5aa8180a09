import BLIPProtocol

/// The counters of one connection, and what of them its loop's sums have already: under the lock of the loop's
/// connections, except for what is the loop's.
final class CounterRecord: @unchecked Sendable {
    var current = ConnectionCounters()
    private var folded = ConnectionCounters()
    private var foldedTrips = RoundTrips()
    /// Made with the first round trip; set under the lock.
    private(set) var histogram: RoundTripHistogram?
    /// Where it stands among its loop's changed ones; −1: nothing has changed since it was added up.
    var indexInChanged = -1
    /// Sums of the listener that has accepted the connection.
    let listenerTotals: CounterTotals?

    // The loop's.
    /// Where the engine goes on, of a connection that has given up its session.
    var rest: EngineRest?
    var errorsSent: UInt64 = 0
    var errorsReceived: UInt64 = 0
    var readingPaused: UInt64 = 0
    var readingPausedSince: UInt64 = 0
    var sendingPaused: UInt64 = 0
    var sendingPausedSince: UInt64 = 0
    /// Bytes of streamed messages that wait to be read.
    var streamedBytes = 0
    /// What the runtime's budget knows of.
    var reportedBytes = 0
    /// Made when the program keeps a message that is not small.
    var memory: IncomingMemory?

    init(listenerTotals: CounterTotals?) { self.listenerTotals = listenerTotals }

    func setHistogram(_ histogram: RoundTripHistogram) { self.histogram = histogram }

    var roundTrips: RoundTrips { histogram?.read() ?? RoundTrips() }

    /// Adds what has changed to the sums.
    func fold(into totals: CounterTotals) {
        totals.counters.add(current, since: folded)
        listenerTotals?.counters.add(current, since: folded)
        folded = current
        guard let histogram else { return }
        let trips = histogram.read()
        totals.roundTrips.add(trips, since: foldedTrips)
        listenerTotals?.roundTrips.add(trips, since: foldedTrips)
        foldedTrips = trips
    }
}
