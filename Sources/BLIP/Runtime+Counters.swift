import CBLIP
import Transport

extension Runtime {
    /// Calls `body` while no loop publishes figures: the locks of all are held, taken in one order.
    private func withAllInfo<R>(from index: Int = 0, _ body: () -> R) -> R {
        guard index < contexts.count else { return body() }
        return contexts[index].infoLock.withLock { _ in
            contexts[index].foldChanged()
            return withAllInfo(from: index + 1, body)
        }
    }

    /// The sums over all connections that the runtime ever had, and over those of its listeners.
    func readAll() -> (sum: CounterSnapshot, listeners: [(url: String, sum: CounterSnapshot)]) {
        let listeners = liveListeners
        return withAllInfo {
            let sum = Self.sum(contexts.map(\.totals))
            return (sum, listeners.map { ($0.url?.string ?? "", Self.sum($0.totals)) })
        }
    }

    public func snapshot() -> CounterSnapshot { readAll().sum }

    func snapshot(of listener: Listener) -> CounterSnapshot { withAllInfo { Self.sum(listener.totals) } }

    private static func sum(_ totals: [CounterTotals]) -> CounterSnapshot {
        var counters = ConnectionCounters()
        var roundTrips = RoundTrips()
        for total in totals {
            counters.add(total.counters)
            roundTrips.add(total.roundTrips.read())
        }
        return CounterSnapshot(counters, roundTrips)
    }

    /// The figures as text for Prometheus, and the snapshot that they are of.
    public func metrics() -> (snapshot: CounterSnapshot, text: Text) {
        let (sum, listeners) = readAll()
        var writer = MetricsWriter()
        writer.write(sum, listeners)
        let text = Text(writer.text)
        sum.setText(text)
        return (sum, text)
    }
}
