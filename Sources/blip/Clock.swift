import Glibc

/// The monotonic clock.
enum Clock {
    /// Nanoseconds since some moment.
    static var now: UInt64 {
        var time = timespec()
        clock_gettime(CLOCK_MONOTONIC, &time)
        return UInt64(max(0, time.tv_sec)) &* 1_000_000_000 &+ UInt64(max(0, time.tv_nsec))
    }

    static func seconds(since start: UInt64) -> Double {
        Double(now &- start) / 1e9
    }
}
