/// Sums over connections of one loop, ended ones too; under the lock of the loop's connections.
final class CounterTotals: @unchecked Sendable {
    var counters = ConnectionCounters()
    var roundTrips = RoundTrips()
}
