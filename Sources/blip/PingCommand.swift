import CBLIP
import Glibc

/// `blip ping`: WebSocket pings, one by one, and how long their pongs took.
enum PingCommand {
    static let command = Command(
        name: "ping",
        summary: "Measure the round trip to a server with WebSocket pings.",
        operands: "URL",
        operandCount: 1...1,
        options: [
            Option(name: "--count", short: "c", value: "N", help: "pings to send (default 4)"),
            Option(name: "--interval", short: "i", value: "SECONDS", help: "pause between two (default 1)"),
        ] + Client.options + [.json, .helpOption],
        notes: """
            Exit codes: 0 every ping was answered, 2 no connection or a ping without an answer, 64 usage.
            """,
        run: run)

    private static func run(_ arguments: Arguments) throws(Failure) -> Int32 {
        let count = try arguments.integer("--count", 1...1_000_000_000, default: 4)
        let interval = try arguments.milliseconds("--interval") ?? 1000
        let client = try Client(arguments)
        let isJSON = arguments.has("--json")
        let connection = try client.open()
        var histogram = Histogram()
        for index in 1...count {
            let microseconds = try ping(connection, patience: client.patience)
            histogram.record(microseconds)
            if isJSON {
                var json = JSONWriter()
                json.object { json in
                    json.field("type", "pong")
                    json.field("number", index)
                    json.field("microseconds", microseconds)
                }
                Output.print(json.text + "\n")
            } else {
                Output.print("pong \(index) from \(Terminal.escape(connection.url)): \(milliseconds(microseconds))\n")
            }
            if index < count { pause(interval) }
        }
        connection.close()
        if isJSON {
            var json = JSONWriter()
            json.object { json in
                json.field("type", "summary")
                json.field("count", count)
                json.field("minimum", histogram.minimum)
                json.field("mean", histogram.mean, decimals: 1)
                json.field("maximum", histogram.maximum)
            }
            Output.print(json.text + "\n")
        } else {
            Output.print(
                "\(count) answered: least \(milliseconds(histogram.minimum)), "
                    + "mean \(Number.fixed(histogram.mean / 1000, 3)) ms, most \(milliseconds(histogram.maximum))\n")
        }
        return ExitCode.success
    }

    private static func ping(_ connection: Connection, patience: Int64) throws(Failure) -> UInt64 {
        let pong = Pong()
        let context = Unmanaged.passRetained(pong)
        let status = blip_connection_ping(
            connection.handle, patience,
            { _, status, microseconds, context in
                guard let context else { return }
                Unmanaged<Pong>.fromOpaque(context).takeUnretainedValue().arrived(status, microseconds)
            }, context.toOpaque(),
            { context in
                if let context { Unmanaged<Pong>.fromOpaque(context).release() }
            })
        guard status != BLIP_ERROR_UNSUPPORTED else {
            throw .usage(
                "cannot ping \(Terminal.escape(connection.url)): BLIP 1 has no pings (blip request works)",
                status: status)
        }
        guard status >= 0 else { throw connection.lost(status) }
        // The library ends every ping by its own deadline; the second more only guards against waiting for ever.
        let (result, microseconds) = pong.wait(until: Clock.now + UInt64(patience + 1000) * 1_000_000)
        guard result >= 0 else {
            if result == BLIP_ERROR_TIMEOUT {
                throw .connection(
                    "no pong from \(Terminal.escape(connection.url)) (the peer is silent: try again, or give it more "
                        + "time with --timeout)", status: result)
            }
            throw connection.lost(result)
        }
        return UInt64(max(0, microseconds))
    }

    private static func pause(_ milliseconds: Int64) {
        var time = timespec(tv_sec: Int(milliseconds / 1000), tv_nsec: Int(milliseconds % 1000) * 1_000_000)
        var rest = timespec()
        while nanosleep(&time, &rest) != 0 && errno == EINTR { time = rest }
    }

    private static func milliseconds(_ microseconds: UInt64) -> String {
        "\(Number.fixed(Double(microseconds) / 1000, 3)) ms"
    }
}

/// The outcome of one ping.
private final class Pong: @unchecked Sendable {
    // Guarded by the monitor.
    private var outcome: (blip_status, Int64)?
    private let monitor = Monitor()

    func arrived(_ status: blip_status, _ microseconds: Int64) {
        monitor.locked {
            outcome = (status, microseconds)
            monitor.signal()
        }
    }

    func wait(until deadline: UInt64) -> (blip_status, Int64) {
        monitor.locked {
            while outcome == nil && Clock.now < deadline {
                monitor.wait(until: deadline)
            }
            return outcome ?? (BLIP_ERROR_TIMEOUT, 0)
        }
    }
}
