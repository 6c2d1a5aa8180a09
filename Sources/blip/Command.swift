/// One command: its options, its help, and what it does.
struct Command: Sendable {
    let name: String
    let summary: String
    let operands: String
    let operandCount: ClosedRange<Int>
    let options: [Option]
    let notes: String
    let run: @Sendable (Arguments) throws(Failure) -> Int32

    /// How the command is called, without options.
    var form: String { operands.isEmpty ? "blip \(name)" : "blip \(name) \(operands)" }

    var help: String {
        let rows = options.map { ($0.synopsis, $0.help) }
        let width = rows.map(\.0.count).max() ?? 0
        let lines = rows.map { row in
            "  \(row.0)\(String(repeating: " ", count: width - row.0.count))  \(row.1)\n"
        }
        return """
            \(summary)

            Usage: \(form) [OPTION]...

            Options:
            \(lines.joined())
            \(notes)

            """
    }
}
