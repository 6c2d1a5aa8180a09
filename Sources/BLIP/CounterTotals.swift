import BLIPProtocol
import Synchronization

/// Sums over connections of one loop, ended ones too; under the lock of the loop's connections.
final class CounterTotals: @unchecked Sendable {
    var counters = ConnectionCounters()
    /// Counted by the loop as the responses come.
    let roundTrips = RoundTripHistogram()
}
