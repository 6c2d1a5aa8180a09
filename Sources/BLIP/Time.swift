import CSystem

/// Now on the monotonic clock.
func monotonicNanoseconds() -> UInt64 { csystem_now() }

/// Milliseconds as nanoseconds; negative ones mean for ever.
func nanoseconds(_ milliseconds: Int64) -> UInt64 {
    guard milliseconds >= 0 else { return UInt64.max / 2 }
    let (result, overflow) = UInt64(milliseconds).multipliedReportingOverflow(by: 1_000_000)
    return overflow ? UInt64.max / 2 : min(result, UInt64.max / 2)
}
