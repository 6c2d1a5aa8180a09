import CBLIP
import Transport

/// A `blip_counters`: figures of a connection, listener or runtime, taken together.
public final class CounterSnapshot: SlotOwner, @unchecked Sendable {
    public static var handleKind: HandleKind { .counters }
    public var slot: UInt32 = 0

    private struct State {
        var counters: ConnectionCounters
        var roundTrips: RoundTrips
        var text: Text?
    }

    private let state: Locked<State>

    init(_ counters: ConnectionCounters = ConnectionCounters(), _ roundTrips: RoundTrips = RoundTrips()) {
        state = Locked(State(counters: counters, roundTrips: roundTrips))
    }

    /// All zero, to add others to.
    public convenience init() { self.init(ConnectionCounters(), RoundTrips()) }

    deinit { HandleTable.freeSlot(slot) }

    var values: (counters: ConnectionCounters, roundTrips: RoundTrips) {
        state.withLock { ($0.counters, $0.roundTrips) }
    }

    /// By `BLIP_COUNTER_*`; nil for one that is not known.
    public subscript(counter: Int32) -> UInt64? {
        state.withLock { state in
            switch counter {
            case BLIP_COUNTER_ROUND_TRIPS: state.roundTrips.count
            case BLIP_COUNTER_ROUND_TRIP_TIME: state.roundTrips.sum / 1000
            default: state.counters[counter]
            }
        }
    }

    public func add(_ other: CounterSnapshot) {
        let (counters, trips) = other.values
        state.withLock { state in
            state.counters.add(counters)
            state.roundTrips.add(trips)
        }
    }

    /// Microseconds that `percent` of the round trips do not exceed; nil without any.
    public func percentile(_ percent: Double) -> Int64? {
        state.withLock { state in
            state.roundTrips.percentile(percent / 100).map { Int64(($0 + 999) / 1000) }
        }
    }

    public static var bucketCount: Int { RoundTrips.bucketCount }

    /// How many round trips took less than `end` nanoseconds and not less than the bucket before; nil beyond the last.
    public func bucket(_ index: Int) -> (end: UInt64, count: UInt64)? {
        guard index >= 0, index < RoundTrips.bucketCount else { return nil }
        return state.withLock { state in
            (RoundTrips.end(of: index) ?? .max, state.roundTrips.counts.isEmpty ? 0 : state.roundTrips.counts[index])
        }
    }

    func setText(_ text: Text) { state.withLock { $0.text = text } }
}
