import CBLIP

/// Why the tool gives up: one line for a person (what, on what, what to do), a status and the exit code.
///
/// Whatever the text quotes, names and passwords in URLs are left out of it.
struct Failure: Error {
    let exitCode: Int32
    let text: String
    let status: blip_status

    private init(exitCode: Int32, text: String, status: blip_status) {
        self.exitCode = exitCode
        self.text = Credentials.removed(from: text)
        self.status = status
    }

    /// Something the person typed cannot be used.
    static func usage(_ text: String, status: blip_status = BLIP_ERROR_ARGUMENT) -> Failure {
        Failure(exitCode: ExitCode.usage, text: text, status: status)
    }

    /// The connection did not come about, or ended too early.
    static func connection(_ text: String, status: blip_status) -> Failure {
        Failure(exitCode: ExitCode.noConnection, text: text, status: status)
    }
}
