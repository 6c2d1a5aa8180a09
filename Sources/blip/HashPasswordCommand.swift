import CBLIP
import Glibc

/// `blip hash-password`: a line of a file of users for `blip serve --user @FILE`.
enum HashPasswordCommand {
    static let command = Command(
        name: "hash-password",
        summary: "Read a password from standard input and print its salted hash.",
        operands: "",
        operandCount: 0...0,
        options: [.helpOption],
        notes: """
            The first line counts; a terminal does not show it. "NAME:" and the hash make a line of a file for blip serve --user @FILE.
            """,
        run: run)

    private static func run(_ arguments: Arguments) throws(Failure) -> Int32 {
        guard let password = try Secret.line() else {
            throw .usage("there is no password on standard input")
        }
        var buffer = [UInt8](repeating: 0, count: Int(BLIP_PASSWORD_HASH_SIZE))
        var size = 0
        let status = password.withSlice { blip_password_hash($0, &buffer, buffer.count, &size) }
        try Library.check(status, "hash the password")
        Output.print(String(decoding: buffer[..<min(size, buffer.count)], as: UTF8.self) + "\n")
        return ExitCode.success
    }
}
