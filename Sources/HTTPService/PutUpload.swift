import WebSocketProtocol

/// The body of a PUT request, as the content of a file.
final class PutUpload: HTTPUpload {
    private let writer: FileWriter
    private let tooLarge: HTTPResponse
    private let location: String
    /// The answer if what is there now is not what the request expects.
    private let condition: () -> HTTPResponse?

    init(
        writer: FileWriter, tooLarge: HTTPResponse, location: String, condition: @escaping () -> HTTPResponse?
    ) {
        self.writer = writer
        self.tooLarge = tooLarge
        self.location = location
        self.condition = condition
        super.init()
    }

    override func write(_ bytes: UnsafeRawBufferPointer) -> HTTPResponse? {
        guard let failure = writer.write(bytes) else { return nil }
        return failure.response.status == 413 ? tooLarge : failure.response
    }

    override func finish() -> HTTPResponse {
        // Others may have written while the body was on its way.
        if let refusal = condition() { return refusal }
        if let failure = writer.finish() { return failure.response }
        if writer.replaces { return HTTPResponse(status: 204) }
        return HTTPResponse(status: 201, headers: [HTTPHeader("Location", location)])
    }
}
