import BLIPProtocol
import Synchronization

/// What a connection has once BLIP is spoken: the engine, and the link that carries its frames.
final class Session {
    let engine: Engine
    let link: Link
    let record: CounterRecord
    /// The same, for each turn: the session holds it, nobody has to count.
    let uncountedRecord: Unmanaged<CounterRecord>
    /// The counts of `record.histogram`, once there is one.
    var roundTripCounts: UnsafeMutablePointer<Atomic<UInt64>>?
    /// The same of all the connections that the listener has accepted.
    let listenerRoundTripCounts: UnsafeMutablePointer<Atomic<UInt64>>?
    /// The peer broke a protocol and was told.
    var isBroken = false
    /// Messages whose last byte is on its way to the operating system and that want to know.
    var flushing: [BLIPMessage] = []

    init(engine: Engine, link: Link, record: CounterRecord) {
        self.engine = engine
        self.link = link
        self.record = record
        uncountedRecord = Unmanaged.passUnretained(record)
        roundTripCounts = record.histogram?.counts
        listenerRoundTripCounts = record.listenerTotals?.roundTrips.counts
    }
}
