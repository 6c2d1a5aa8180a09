import Glibc

/// What a person gives to an option and nobody shall see. `@FILE` means the file's first line, which no list of processes
/// shows. No message quotes any of it.
enum Secret {
    /// The value of an option; nil without it.
    static func value(_ arguments: Arguments, _ option: String) throws(Failure) -> String? {
        guard let text = arguments.value(option) else { return nil }
        return try lines(text, option).first ?? ""
    }

    /// A user name and a password, with a colon between them.
    static func pair(_ text: String, _ option: String) throws(Failure) -> (user: String, password: String) {
        guard let colon = text.firstIndex(of: ":"), colon > text.startIndex else {
            throw .usage("\(option) wants NAME:PASSWORD, or @FILE with such a line")
        }
        return (String(text[..<colon]), String(text[text.index(after: colon)...]))
    }

    /// The text itself, or the lines of the file that it names; empty ones are left out.
    static func lines(_ text: String, _ option: String) throws(Failure) -> [String] {
        guard text.hasPrefix("@") else { return [text] }
        let path = String(text.dropFirst())
        let (descriptor, _) = try File.openForReading(path)
        defer { close(descriptor) }
        return try read(descriptor, limit: 1 << 20, "what \(option) names").split(separator: "\n").map(String.init)
    }

    /// The first line of standard input; typed by a person, it is asked for and not shown.
    static func line() throws(Failure) -> String? {
        let isTyped = Terminal.isTerminal(STDIN_FILENO)
        let text = isTyped ? try typed() : try read(STDIN_FILENO, limit: 1 << 16, "standard input")
        return text.split(separator: "\n").first.map(String.init)
    }

    private static func typed() throws(Failure) -> String {
        var shown = termios()
        guard tcgetattr(STDIN_FILENO, &shown) == 0 else { throw .usage("cannot ask the terminal: \(Output.reason)") }
        var hidden = shown
        hidden.c_lflag &= ~tcflag_t(ECHO)
        // Interrupted, the program ends only when the terminal is again as it was.
        var before = sigaction()
        var noted = sigaction()
        noted.__sigaction_handler.sa_handler = { _ in }
        sigaction(SIGINT, &noted, &before)
        Output.error("password: ")
        tcsetattr(STDIN_FILENO, TCSAFLUSH, &hidden)
        var buffer = [UInt8](repeating: 0, count: 4096)
        let count = Glibc.read(STDIN_FILENO, &buffer, buffer.count)
        let isInterrupted = count < 0 && errno == EINTR
        tcsetattr(STDIN_FILENO, TCSAFLUSH, &shown)
        sigaction(SIGINT, &before, nil)
        Output.error("\n")
        if isInterrupted { raise(SIGINT) }
        guard count >= 0, let text = String(validating: buffer[..<count], as: UTF8.self) else {
            throw .usage("the password cannot be read, or is no UTF-8")
        }
        return text
    }

    /// All that a descriptor gives, as text.
    private static func read(_ descriptor: Int32, limit: Int, _ what: String) throws(Failure) -> String {
        var bytes: [UInt8] = []
        var buffer = [UInt8](repeating: 0, count: 4096)
        while bytes.count <= limit {
            let count = Glibc.read(descriptor, &buffer, buffer.count)
            if count == 0 { break }
            guard count > 0 else { throw .usage("cannot read \(what): \(Output.reason)") }
            bytes += buffer[..<count]
        }
        guard bytes.count <= limit, let text = String(validating: bytes, as: UTF8.self) else {
            throw .usage("\(what) is too large, or no UTF-8")
        }
        return text
    }
}
