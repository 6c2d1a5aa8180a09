/// Counters of what happens to few connections. The loop's.
final class CounterExtras {
    var errorsSent: UInt64 = 0
    var errorsReceived: UInt64 = 0
    var readingPaused: UInt64 = 0
    var readingPausedSince: UInt64 = 0
    var sendingPaused: UInt64 = 0
    var sendingPausedSince: UInt64 = 0
}
