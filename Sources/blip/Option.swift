/// One option of a command.
struct Option: Sendable {
    /// With its dashes: `--size`.
    let name: String
    var short: Character?
    /// What the help calls its value; nil for a switch.
    var value: String?
    var isRepeatable = false
    let help: String

    var synopsis: String {
        let lead = short.map { "-\($0), " } ?? "    "
        let tail = value.map { " \($0)" } ?? ""
        return lead + name + tail
    }

    static let json = Option(name: "--json", help: "machine-readable output")
    static let verbose = Option(name: "--verbose", short: "v", help: "tell more on standard error")
    static let helpOption = Option(name: "--help", short: "h", help: "show this text")
}
