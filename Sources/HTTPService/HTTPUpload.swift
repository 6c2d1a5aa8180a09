/// Takes the body of a request as it comes.
open class HTTPUpload {
    public init() {}

    /// The next bytes. A response ends the upload: the rest of the body is thrown away.
    open func write(_ bytes: UnsafeRawBufferPointer) -> HTTPResponse? { nil }

    /// The body is complete.
    open func finish() -> HTTPResponse { HTTPResponse(status: 204) }

    /// The client went away, or broke HTTP, before the end.
    open func abandon() {}
}
