import Glibc

/// A line on standard error that shows how far a long body is; nothing unless a person watches.
final class ProgressBar {
    private let label: String
    private let total: UInt64?
    private let isShown: Bool
    private let start = Clock.now
    private var lastDrawn: UInt64 = 0
    private var isDrawn = false

    init(label: String, total: UInt64?, isShown: Bool = true) {
        self.label = label
        self.total = total
        self.isShown = isShown && Terminal.isTerminal(STDERR_FILENO)
    }

    func update(_ count: UInt64) {
        guard isShown else { return }
        let now = Clock.now
        // What is over in half a second needs no bar; ten pictures a second are enough.
        guard now - start > 500_000_000, now - lastDrawn > 100_000_000 else { return }
        lastDrawn = now
        isDrawn = true
        Output.error("\r" + line(count, now) + "\u{1B}[K")
    }

    /// Takes the line away.
    func finish() {
        if isDrawn { Output.error("\r\u{1B}[K") }
        isDrawn = false
    }

    private func line(_ count: UInt64, _ now: UInt64) -> String {
        let rate = Number.bytes(UInt64(Double(count) / max(0.001, Double(now - start) / 1e9)))
        guard let total, total > 0 else {
            return "\(label) \(Number.bytes(count)), \(rate)/s"
        }
        let share = min(1, Double(count) / Double(total))
        let text = "\(Number.fixed(share * 100, 0)) % of \(Number.bytes(total)), \(rate)/s"
        let room = min(40, Terminal.width(STDERR_FILENO) - label.count - text.count - 6)
        guard room >= 8 else { return "\(label) \(text)" }
        let filled = Int(share * Double(room))
        let bar = String(repeating: "#", count: filled) + String(repeating: "-", count: room - filled)
        return "\(label) [\(bar)] \(text)"
    }
}
