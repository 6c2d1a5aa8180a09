import CBLIP

/// How the end of a request is told to the program.
struct ResponseCompletion {
    var function: blip_response_fn?
    var context: UnsafeMutableRawPointer?
    var release: ReleaseFunction?
}
