/// Counters that have changed since they were added up.
struct ChangedRecord {
    let record: CounterRecord
    /// What the sums have of them.
    let known: ConnectionCounters
}
