import CBLIP

/// `blip bench`: how many requests a second, and how long each takes.
enum BenchCommand {
    static let command = Command(
        name: "bench",
        summary: "Send requests as fast as a server answers them, and report rate and latency.",
        operands: "URL",
        operandCount: 1...1,
        options: [
            Option(name: "--size", short: "s", value: "N", help: "bytes of each request's body (default 100)"),
            Option(name: "--count", short: "n", value: "N", help: "requests to send (default 100000)"),
            Option(name: "--in-flight", short: "c", value: "N", help: "requests unanswered at a time (default 64)"),
            Option(name: "--compressed", help: "compress the bodies (JSON text)"),
            Option(name: "--profile", value: "NAME", help: "profile of the requests (default echo)"),
        ] + Client.options + [.json, .helpOption],
        notes: """
            Numbers may end in k, M or G: 1,000 at a time, 1,024 for --size. MB/s counts body bytes of requests and
            replies together, 1 MB = 1,000,000 bytes. Percentiles are exact within 2 %.

            Exit codes: 0 all answered, 1 error replies among them, 2 no connection or lost, 64 usage.
            """,
        run: run)

    private static func run(_ arguments: Arguments) throws(Failure) -> Int32 {
        let size = try arguments.integer("--size", 0...(64 << 20), default: 100, inBytes: true)
        let count = try arguments.integer("--count", 1...1_000_000_000_000, default: 100_000)
        let inFlight = try arguments.integer("--in-flight", 1...65_536, default: 64)
        let isCompressed = arguments.has("--compressed")
        let client = try Client(arguments)
        let bench = BenchRun(
            body: BenchBody(size: size), profile: arguments.value("--profile") ?? "echo", count: count,
            slots: min(inFlight, count), isCompressed: isCompressed)
        let connection = try client.open { bench.startWhenOpen($0) }
        // Also after a failure: a process that just ends looks like a lost connection.
        defer { connection.close() }
        let result = try bench.wait(connection, patience: client.patience)
        connection.close()
        if arguments.has("--json") {
            Output.print(json(result, size: size, inFlight: inFlight, isCompressed) + "\n")
        } else {
            Output.print(report(result, size: size, inFlight: inFlight, isCompressed))
        }
        if let text = result.firstError {
            Output.error("blip: \(Terminal.escape(connection.url)) answered with an error: \(text)\n")
        }
        return result.errorReplies == 0 ? ExitCode.success : ExitCode.errorReply
    }

    private static func report(_ result: BenchResult, size: Int, inFlight: Int, _ isCompressed: Bool) -> String {
        func microseconds(_ share: Double) -> String {
            Number.fixed(Double(result.latency.percentile(share)) / 1000, 1)
        }
        let errors = result.errorReplies == 0 ? "" : "; \(result.errorReplies) of them error replies"
        return """
            \(result.replies) \(result.replies == 1 ? "reply" : "replies") in \(Number.fixed(result.seconds, 3)) s: \
            \(size)-byte bodies\(isCompressed ? ", compressed" : ""), \(inFlight) in flight\(errors)
            rate     \(Number.fixed(result.rate, 0)) requests/s, \(Number.fixed(result.megabytes, 1)) MB/s
            latency  p50 \(microseconds(0.5)) µs, p99 \(microseconds(0.99)) µs, p99.9 \(microseconds(0.999)) µs, \
            most \(Number.fixed(Double(result.latency.maximum) / 1000, 1)) µs

            """
    }

    private static func json(_ result: BenchResult, size: Int, inFlight: Int, _ isCompressed: Bool) -> String {
        var json = JSONWriter()
        json.object { json in
            json.field("type", "bench")
            json.field("count", result.replies)
            json.field("errors", result.errorReplies)
            if let text = result.firstError { json.field("firstError", text) }
            json.field("size", size)
            json.field("inFlight", inFlight)
            json.field("compressed", isCompressed)
            json.field("seconds", result.seconds, decimals: 6)
            json.field("requestsPerSecond", result.rate, decimals: 1)
            json.field("megabytesPerSecond", result.megabytes, decimals: 3)
            json.objectField("microseconds") { json in
                for (name, share) in [("p50", 0.5), ("p99", 0.99), ("p999", 0.999)] {
                    json.field(name, Double(result.latency.percentile(share)) / 1000, decimals: 2)
                }
                json.field("mean", result.latency.mean / 1000, decimals: 2)
                json.field("maximum", Double(result.latency.maximum) / 1000, decimals: 2)
            }
        }
        return json.text
    }
}
