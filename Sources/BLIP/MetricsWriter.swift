import BLIPProtocol
import CBLIP

/// Writes figures in Prometheus' text format 0.0.4: base units, totals named so, a help and a type for each metric.
struct MetricsWriter {
    private(set) var text = ""

    private enum Kind: String {
        case counter
        case gauge
        case histogram
    }

    private typealias Labels = [(name: String, value: String)]

    private static let sent: Labels = [("direction", "sent")]
    private static let received: Labels = [("direction", "received")]

    mutating func write(_ sum: CounterSnapshot, _ listeners: [(url: String, sum: CounterSnapshot)]) {
        let (counters, roundTrips) = sum.values
        head("blip_build_info", .gauge, "Version of the library; always 1.")
        line("blip_build_info", [("version", LibraryVersion.text)], "1")
        writeConnections("blip_", [([], counters)], "")
        writeTraffic("blip_", [([], counters)], "")
        pair(
            "blip_frames_total", "BLIP frames, acknowledgements included.", counters.engine.framesSent,
            counters.engine.framesReceived)
        pair(
            "blip_compressed_raw_bytes_total", "Bytes of compressed frames before compression.",
            counters.engine.compressionInput, counters.engine.decompressionOutput)
        pair(
            "blip_compressed_wire_bytes_total", "Bytes of compressed frames as they were on the wire.",
            counters.engine.compressionOutput, counters.engine.decompressionInput)
        gauge("blip_requests_pending", "Requests sent that have no whole response.", counters.requestsPending)
        gauge("blip_requests_unanswered", "Requests received that have no response.", counters.requestsUnanswered)
        gauge("blip_messages_queued", "Messages that are not fully sent.", counters.messagesQueued)
        gauge("blip_messages_paused", "Messages that wait for acknowledgements.", counters.messagesPaused)
        gauge("blip_messages_unfinished", "Messages received in part.", counters.messagesUnfinished)
        gauge("blip_incoming_memory_bytes", "Memory of received messages.", counters.memory)
        gauge("blip_backlog_bytes", "Size of messages that wait to be sent.", counters.backlog)
        seconds(
            "blip_reading_paused_seconds_total", "Time in which full event queues stopped reading.",
            counters.readingPaused)
        seconds(
            "blip_sending_paused_seconds_total", "Time in which messages waited for acknowledgements.",
            counters.sendingPaused)
        histogram("blip_round_trip_seconds", "Time from sending a request to its response.", roundTrips)
        guard !listeners.isEmpty else { return }
        let labelled = listeners.map { (labels: [("listener", $0.url)] as Labels, counters: $0.sum.values.counters) }
        writeConnections("blip_listener_", labelled, " of a listener")
        writeTraffic("blip_listener_", labelled, " of a listener")
    }

    private typealias Rows = [(labels: Labels, counters: ConnectionCounters)]

    private mutating func writeConnections(_ prefix: String, _ rows: Rows, _ whose: String) {
        head(prefix + "connections", .gauge, "Open connections\(whose).")
        for row in rows { line(prefix + "connections", row.labels, "\(row.counters.connections)") }
        head(prefix + "connections_opened_total", .counter, "Connections\(whose) that have opened.")
        for row in rows { line(prefix + "connections_opened_total", row.labels, "\(row.counters.connectionsOpened)") }
        head(prefix + "connections_failed_total", .counter, "Connections\(whose) that ended before they opened.")
        for row in rows { line(prefix + "connections_failed_total", row.labels, "\(row.counters.connectionsFailed)") }
    }

    private mutating func writeTraffic(_ prefix: String, _ rows: Rows, _ whose: String) {
        both(prefix + "messages_total", "Whole messages\(whose).", rows) {
            ($0.engine.messagesSent, $0.engine.messagesReceived)
        }
        both(prefix + "transport_bytes_total", "Bytes of the WebSocket transport\(whose), without TLS.", rows) {
            ($0.bytesSent, $0.bytesReceived)
        }
        both(prefix + "error_responses_total", "Error responses\(whose).", rows) { ($0.errorsSent, $0.errorsReceived) }
    }

    // MARK: Metrics

    private mutating func both(
        _ name: String, _ help: String, _ rows: Rows, _ get: (ConnectionCounters) -> (UInt64, UInt64)
    ) {
        head(name, .counter, help)
        for row in rows {
            let (sent, received) = get(row.counters)
            line(name, row.labels + Self.sent, "\(sent)")
            line(name, row.labels + Self.received, "\(received)")
        }
    }

    private mutating func pair(_ name: String, _ help: String, _ sent: UInt64, _ received: UInt64) {
        head(name, .counter, help)
        line(name, Self.sent, "\(sent)")
        line(name, Self.received, "\(received)")
    }

    private mutating func gauge(_ name: String, _ help: String, _ value: UInt64) {
        head(name, .gauge, help)
        line(name, [], "\(value)")
    }

    private mutating func seconds(_ name: String, _ help: String, _ nanoseconds: UInt64) {
        head(name, .counter, help)
        line(name, [], Self.seconds(nanoseconds))
    }

    /// Buckets at powers of two; finer ones are for the program (`blip_counters_percentile`).
    private mutating func histogram(_ name: String, _ help: String, _ trips: RoundTrips) {
        head(name, .histogram, help)
        var seen: UInt64 = 0
        for index in 0..<RoundTrips.bucketCount {
            if !trips.counts.isEmpty { seen &+= trips.counts[index] }
            guard index % 8 == 0, let end = RoundTrips.end(of: index) else { continue }
            line(name + "_bucket", [("le", Self.seconds(end))], "\(seen)")
        }
        line(name + "_bucket", [("le", "+Inf")], "\(trips.count)")
        line(name + "_sum", [], Self.seconds(trips.sum))
        line(name + "_count", [], "\(trips.count)")
    }

    private static func seconds(_ nanoseconds: UInt64) -> String {
        let fraction = String(nanoseconds % 1_000_000_000)
        let digits = String(repeating: "0", count: 9 - fraction.count) + fraction
        return "\(nanoseconds / 1_000_000_000).\(digits)"
    }

    // MARK: Lines

    private mutating func head(_ name: String, _ kind: Kind, _ help: String) {
        text += "# HELP \(name) \(help)\n# TYPE \(name) \(kind.rawValue)\n"
    }

    private mutating func line(_ name: String, _ labels: Labels, _ value: String) {
        text += name
        if !labels.isEmpty {
            text += "{"
            for (index, label) in labels.enumerated() {
                text += "\(index == 0 ? "" : ",")\(label.name)=\"\(Self.escaped(label.value))\""
            }
            text += "}"
        }
        text += " \(value)\n"
    }

    private static func escaped(_ value: String) -> String {
        var result = ""
        for character in value.unicodeScalars {
            switch character {
            case "\\": result += "\\\\"
            case "\"": result += "\\\""
            case "\n": result += "\\n"
            default: result.unicodeScalars.append(character)
            }
        }
        return result
    }
}
