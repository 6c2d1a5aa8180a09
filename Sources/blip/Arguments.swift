/// The options and operands of one call, checked against what its command knows.
///
/// Options may stand before, between and after operands: `--name value`, `--name=value`, `-n value`, `-nvalue`, and
/// switches together as in `-vh`. `--` ends the options; a lone `-` is an operand.
struct Arguments {
    private var values: [String: [String]] = [:]
    private(set) var operands: [String] = []

    init(_ words: [String], for command: Command) throws(Failure) {
        var rest = words[...]
        while let word = rest.popFirst() {
            if word == "--" {
                operands += rest
                break
            } else if word.hasPrefix("--") {
                try take(long: word, &rest, command)
            } else if word.hasPrefix("-") && word != "-" {
                try take(short: word, &rest, command)
            } else {
                operands.append(word)
            }
        }
        guard !has("--help") else { return }
        if operands.count < command.operandCount.lowerBound {
            throw .usage("too few arguments: the form is \(command.form)")
        }
        if operands.count > command.operandCount.upperBound {
            let extra = Terminal.escape(operands[command.operandCount.upperBound])
            throw .usage("unexpected argument \(extra): the form is \(command.form)")
        }
    }

    func has(_ name: String) -> Bool {
        values[name] != nil
    }

    /// The last value given.
    func value(_ name: String) -> String? {
        values[name]?.last
    }

    func all(_ name: String) -> [String] {
        values[name] ?? []
    }

    /// A whole number; `k`, `M` and `G` behind it multiply by 1,000, for bytes by 1,024, once, twice, three times.
    func integer(
        _ name: String, _ range: ClosedRange<Int>, default standard: Int, inBytes: Bool = false
    ) throws(Failure) -> Int {
        guard let text = value(name) else { return standard }
        guard let number = Number.integer(text, base: inBytes ? 1024 : 1000) else {
            throw .usage("\(name) wants a whole number, not \(Terminal.quote(text))")
        }
        guard range.contains(number) else {
            throw .usage("\(name) wants a number from \(range.lowerBound) to \(range.upperBound), not \(number)")
        }
        return number
    }

    /// Seconds, with decimals if need be, as milliseconds.
    func milliseconds(_ name: String) throws(Failure) -> Int64? {
        guard let text = value(name) else { return nil }
        guard let seconds = Double(text), seconds > 0, seconds <= 1_000_000 else {
            throw .usage("\(name) wants seconds, more than 0 and at most 1000000, not \(Terminal.quote(text))")
        }
        return max(1, Int64(seconds * 1000))
    }

    private mutating func take(
        long word: String, _ rest: inout ArraySlice<String>, _ command: Command
    ) throws(Failure) {
        let parts = word.split(separator: "=", maxSplits: 1, omittingEmptySubsequences: false)
        let name = String(parts[0])
        guard let option = command.options.first(where: { $0.name == name }) else {
            let near = Spelling.nearest(to: name, among: command.options.map(\.name))
            let hint = near.map { "; did you mean \($0)?" } ?? ""
            throw .usage("unknown option \(Terminal.escape(name))\(hint) (blip \(command.name) --help lists them)")
        }
        if option.value == nil {
            guard parts.count == 1 else { throw .usage("\(name) takes no value") }
            try record(option, "")
        } else if parts.count == 2 {
            try record(option, String(parts[1]))
        } else if let next = rest.popFirst() {
            try record(option, next)
        } else {
            throw .usage("\(name) wants a value: \(option.synopsis.drop { $0 == " " })")
        }
    }

    private mutating func take(
        short word: String, _ rest: inout ArraySlice<String>, _ command: Command
    ) throws(Failure) {
        var letters = word.dropFirst()
        while let letter = letters.popFirst() {
            guard let option = command.options.first(where: { $0.short == letter }) else {
                let shown = Terminal.escape("-\(letter)")
                throw .usage("unknown option \(shown) (blip \(command.name) --help lists them)")
            }
            if option.value == nil {
                try record(option, "")
            } else if !letters.isEmpty {
                try record(option, String(letters))
                letters = ""
            } else if let next = rest.popFirst() {
                try record(option, next)
            } else {
                throw .usage("-\(letter) wants a value: \(option.synopsis)")
            }
        }
    }

    private mutating func record(_ option: Option, _ value: String) throws(Failure) {
        if option.value != nil && !option.isRepeatable && values[option.name] != nil {
            throw .usage("\(option.name) is given twice")
        }
        values[option.name, default: []].append(value)
    }
}
