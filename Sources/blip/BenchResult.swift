/// What a benchmark measured.
struct BenchResult {
    var replies = 0
    var errorReplies = 0
    /// The first error reply, as "DOMAIN/code: text" fit for a terminal.
    var firstError: String?
    var bodyBytes: UInt64 = 0
    var seconds = 0.0
    /// Nanoseconds from handing a request over to its complete reply.
    var latency = Histogram()

    var rate: Double { seconds > 0 ? Double(replies) / seconds : 0 }
    var megabytes: Double { seconds > 0 ? Double(bodyBytes) / 1e6 / seconds : 0 }
}
