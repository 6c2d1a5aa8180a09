import CBLIP

/// Why the tool gives up: one line for a person (what, on what, what to do), a status and the exit code.
struct Failure: Error {
    let exitCode: Int32
    let text: String
    let status: blip_status

    /// Something the person typed cannot be used.
    static func usage(_ text: String, status: blip_status = BLIP_ERROR_ARGUMENT) -> Failure {
        Failure(exitCode: ExitCode.usage, text: text, status: status)
    }

    /// The connection did not come about, or ended too early.
    static func connection(_ text: String, status: blip_status) -> Failure {
        Failure(exitCode: ExitCode.noConnection, text: text, status: status)
    }
}
