import CBLIP
import Glibc

/// The program: finds the command, runs it, turns what went wrong into one line and an exit code.
enum Tool {
    static let commands: [Command] = [
        ServeCommand.command, RequestCommand.command, BenchCommand.command, PingCommand.command,
        HashPasswordCommand.command,
    ]

    static func run(_ arguments: [String]) -> Int32 {
        guard let first = arguments.first else {
            Output.error(help)
            return ExitCode.usage
        }
        switch first {
        case "--help", "-h":
            Output.print(help)
            return ExitCode.success
        case "help":
            return explain(arguments.dropFirst().first)
        case "--version", "-V":
            Output.print("blip \(headerVersion) (libblip \(libraryVersion))\n")
            return ExitCode.success
        default:
            break
        }
        guard let command = commands.first(where: { $0.name == first }) else {
            let kind = first.hasPrefix("-") ? "option" : "command"
            let name = Terminal.escape(Credentials.removed(from: first))
            let near = Spelling.nearest(to: first, among: commands.map(\.name)).map { "; did you mean \($0)?" } ?? ""
            Output.error("blip: unknown \(kind) \(name)\(near) (blip --help lists what there is)\n")
            return ExitCode.usage
        }
        let words = arguments.dropFirst()
        do throws(Failure) {
            let parsed = try Arguments(Array(words), for: command)
            if parsed.has("--help") {
                Output.print(command.help)
                return ExitCode.success
            }
            return try command.run(parsed)
        } catch {
            // Looked for as typed: what is wrong may be the options.
            report(error, of: command, asJSON: words.prefix { $0 != "--" }.contains("--json"))
            return error.exitCode
        }
    }

    /// With --json a failure is an object on standard output too, for the program that reads it.
    private static func report(_ failure: Failure, of command: Command, asJSON: Bool) {
        if asJSON {
            var json = JSONWriter()
            json.object { json in
                json.field("type", "failure")
                json.field("status", Library.name(of: failure.status))
                json.field("text", failure.text)
            }
            Output.print(json.text + "\n")
        }
        let name = failure.exitCode == ExitCode.usage ? "blip \(command.name)" : "blip"
        Output.error("\(name): \(failure.text)\n")
    }

    private static func explain(_ name: String?) -> Int32 {
        guard let name else {
            Output.print(help)
            return ExitCode.success
        }
        guard let command = commands.first(where: { $0.name == name }) else {
            Output.error("blip: no command \(Terminal.escape(name)) (blip --help lists what there is)\n")
            return ExitCode.usage
        }
        Output.print(command.help)
        return ExitCode.success
    }

    private static var headerVersion: String {
        "\(BLIP_VERSION_MAJOR).\(BLIP_VERSION_MINOR).\(BLIP_VERSION_PATCH)"
    }

    private static var libraryVersion: String {
        blip_version_string().map { String(cString: $0) } ?? "unknown"
    }

    private static var help: String {
        let width = commands.map(\.name.count).max() ?? 0
        let lines = commands.map { command in
            let padding = String(repeating: " ", count: width - command.name.count)
            return "  \(command.name)\(padding)  \(command.summary)\n"
        }
        return """
            Speaks BLIP, a protocol of requests and replies over WebSocket.

            Usage: blip COMMAND [OPTION]... [ARGUMENT]...

            Commands:
            \(lines.joined())
            Options:
              -h, --help     show this text; blip COMMAND --help tells about a command
              -V, --version  show the versions of the tool and of the library

            Exit codes: 0 reply, 1 error reply, 2 no connection or lost, 64 usage.

            """
    }
}
