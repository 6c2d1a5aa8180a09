import BLIPProtocol
import CBLIP
import Transport

/// One look at everything, for a dashboard: each loop writes what its connections do, the last one answers.
final class DashboardSnapshot: @unchecked Sendable {
    // Sendable: what several loops write is behind a lock.

    /// Connections, and messages, that are told of in full.
    private static let maximumRows = 200

    private struct Part {
        var connections: [String] = []
        var messages: [String] = []
        var count = 0
    }

    private struct State {
        var part = Part()
        var missing: Int
    }

    private let request: BLIPMessage
    private let handle: OpaquePointer?
    private let listener: Listener
    private let facts: String
    private let state: Locked<State>

    init(_ request: BLIPMessage, _ handle: OpaquePointer?, listener: Listener, facts: String) {
        self.request = request
        self.handle = handle
        self.listener = listener
        self.facts = facts
        state = Locked(State(missing: listener.runtime.contexts.count))
    }

    func begin() {
        for context in listener.runtime.contexts {
            if !context.loop.post({ [self] in add(Self.look(at: context)) }) { add(Part()) }
        }
    }

    private func add(_ part: Part) {
        let whole = state.withLock { state -> Part? in
            let rows = Self.maximumRows
            state.part.connections += part.connections.prefix(rows - min(rows, state.part.connections.count))
            state.part.messages += part.messages.prefix(rows - min(rows, state.part.messages.count))
            state.part.count += part.count
            state.missing -= 1
            return state.missing == 0 ? state.part : nil
        }
        if let whole { answer(whole) }
    }

    private func answer(_ part: Part) {
        let sum = listener.runtime.snapshot()
        var json = JSONText()
        json.object { json in
            json.raw("facts", facts)
            json.value("connectionCount", part.count)
            json.array("connections") { json in for row in part.connections { json.rawItem(row) } }
            json.array("messages") { json in for row in part.messages { json.rawItem(row) } }
            json.object("totals") { json in Self.write(sum.values.counters, to: &json) }
            json.array("roundTrips") { json in
                for (bucket, count) in sum.values.roundTrips.counts.enumerated() where count > 0 {
                    json.array { json in
                        json.item((RoundTrips.end(of: bucket) ?? 1 << 41) / 1000)
                        json.item(count)
                    }
                }
            }
        }
        var text = json.text
        _ = text.withUTF8 { request.respondJSON(blip_slice(UnsafeRawBufferPointer($0))) }
        HandleTable.release(handle, as: BLIPMessage.self)
    }

    private static func write(_ counters: ConnectionCounters, to json: inout JSONText) {
        json.value("messagesSent", counters.engine.messagesSent)
        json.value("messagesReceived", counters.engine.messagesReceived)
        json.value("bytesSent", counters.bytesSent)
        json.value("bytesReceived", counters.bytesReceived)
        json.value("pending", counters.requestsPending)
        json.value("unanswered", counters.requestsUnanswered)
        json.value("queued", counters.messagesQueued)
        json.value("paused", counters.messagesPaused)
        json.value("pausedTime", (counters.readingPaused &+ counters.sendingPaused) / 1_000_000)
        json.value("backlog", counters.backlog)
        json.value("opened", counters.connectionsOpened)
        json.value("failed", counters.connectionsFailed)
        json.value("errors", counters.errorsSent &+ counters.errorsReceived)
    }

    // MARK: On a loop

    private static func look(at context: LoopContext) -> Part {
        var part = Part()
        for connection in context.connections where connection.phase == .open && !connection.isInternal {
            part.count += 1
            if part.connections.count < maximumRows { part.connections.append(row(connection)) }
            if part.messages.count < maximumRows { addMessages(of: connection, to: &part.messages) }
        }
        return part
    }

    private static func row(_ connection: Connection) -> String {
        let (counters, trips) = connection.snapshot().values
        var json = JSONText()
        json.object { json in
            json.value("id", connection.identifier)
            json.value("peer", connection.peerText)
            json.value("incoming", connection.isIncoming)
            json.value("subprotocol", connection.subprotocolText?.string ?? "")
            json.value("tls", connection.isSecure ? connection.tlsVersionText?.string ?? "TLS" : "")
            json.value("age", connection.age)
            for (name, share) in [("p50", 0.5), ("p99", 0.99)] {
                if let time = trips.percentile(share) { json.value(name, time / 1000) } else { json.null(name) }
            }
            write(counters, to: &json)
        }
        return json.text
    }

    private static func addMessages(of connection: Connection, to rows: inout [String]) {
        guard let engine = connection.session?.engine else { return }
        for (message, isIncoming) in engine.unfinishedMessages(limit: maximumRows - rows.count) {
            guard let message = message as? BLIPMessage else { continue }
            let profile = (message.kind == .request ? message : message.request as? BLIPMessage)?.profileText ?? ""
            var json = JSONText()
            json.object { json in
                json.value("connection", connection.identifier)
                json.value("peer", connection.peerText)
                json.value("number", message.number)
                json.value(
                    "kind", message.kind == .request ? "request" : message.kind == .response ? "response" : "error")
                json.value("incoming", isIncoming)
                json.value("profile", profile)
                json.value("bytes", isIncoming ? message.bodyBytesReceived : message.bodyBytesSent)
                let size = isIncoming ? nil : message.knownBodySize
                if let size { json.value("size", size) } else { json.null("size") }
            }
            rows.append(json.text)
        }
    }
}
