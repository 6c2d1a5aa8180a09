import WebSocketProtocol

/// The server's side of HTTP/1.1 on one connection, without I/O: bytes of requests in, bytes of responses out.
///
/// Requests may be pipelined; they are answered one after the other. A body that nobody wants is thrown away if it is
/// small, else the connection ends.
public final class HTTPSession {
    private enum Place {
        case head
        case body(HTTPUpload?, HTTPBodyReader)
        case response
        case ended
    }

    /// The rest of a body that is read and thrown away to keep a connection.
    private static let discardLimit: UInt64 = 1 << 20

    private let services: [any HTTPService]
    private let isSecure: Bool
    private let maximumHead: Int
    private let maximumRequests: Int
    private let gate: ((HTTPRequestHead) -> HTTPResponse?)?
    private let allowsHost: (HTTPRequestHead, _ isSensitive: Bool) -> Bool
    private let now: () -> Int
    private var parser: HTTPHeadParser
    private var place = Place.head
    private var discarded: UInt64 = 0

    private var output: [UInt8] = []
    private var outputStart = 0
    private var stream: HTTPBodyStream?
    private var isChunked = false
    private var keepsAlive = true
    private var isHead = false
    /// The request is one of HTTP/1.0, whose clients know no chunks.
    private var isOld = false
    /// The response that follows once the request's body was thrown away.
    private var pendingResponse: HTTPResponse?
    public private(set) var requestCount = 0

    /// - Parameters:
    ///   - isSecure: the connection is over TLS.
    ///   - maximumHead: bytes of a request's head.
    ///   - maximumRequests: after that many the connection ends.
    ///   - gate: asked about each request but the first, which was let in already: the answer of one that is not.
    ///   - allowsHost: whether a service may be asked by the name that the request has.
    ///   - now: seconds since 1970.
    public init(
        services: [any HTTPService], isSecure: Bool, maximumHead: Int, maximumRequests: Int = 1000,
        gate: ((HTTPRequestHead) -> HTTPResponse?)? = nil,
        allowsHost: @escaping (HTTPRequestHead, _ isSensitive: Bool) -> Bool = { _, _ in true },
        now: @escaping () -> Int
    ) {
        self.services = services
        self.isSecure = isSecure
        self.maximumHead = maximumHead
        self.maximumRequests = maximumRequests
        self.gate = gate
        self.allowsHost = allowsHost
        self.now = now
        parser = HTTPHeadParser(.request, maximum: maximumHead)
    }

    /// The connection is to end once everything is sent.
    public var isFinished: Bool {
        if case .ended = place { return !hasOutput }
        return false
    }

    /// Waits for a request.
    public var isIdle: Bool {
        if case .head = place { return !hasOutput }
        return false
    }

    public var hasOutput: Bool { outputStart < output.count || stream != nil }

    /// The client went away.
    public func abandon() {
        if case .body(let upload, _) = place { upload?.abandon() }
        place = .ended
        stream = nil
        output = []
        outputStart = 0
    }

    /// The answer to who is not known; `challenge` says what is wanted.
    public static func unauthorized(_ challenge: HTTPHeader) -> HTTPResponse {
        ErrorPage.response(401, "A user name and a password are needed.", headers: [challenge])
    }

    // MARK: Requests

    /// Whether a service answers this request, which is no upgrade.
    public static func service(for request: HTTPRequestHead, in services: [any HTTPService]) -> (any HTTPService)? {
        services.first { $0.handles(path: request.path) }
    }

    /// A request whose head was read already.
    public func begin(_ request: HTTPRequestHead) { handle(request) }

    /// Bytes of the client: how many were taken. The rest has to come again, with more behind it or after `fill` has sent
    /// everything.
    public func receive(_ bytes: UnsafeRawBufferPointer) -> Int {
        var used = 0
        while used < bytes.count {
            let rest = UnsafeRawBufferPointer(rebasing: bytes[used...])
            switch place {
            case .response: return used
            case .ended: return bytes.count
            case .head:
                switch parser.feed(rest) {
                case .incomplete: return used
                case .request(let head, let consumed):
                    used += consumed
                    handle(head)
                case .response(_, let consumed): used += consumed
                case .failed(let status, let text):
                    keepsAlive = false
                    isHead = false
                    respond(ErrorPage.response(status, text))
                    return bytes.count
                }
            case .body(let upload, var reader):
                let step = reader.next(rest)
                place = .body(upload, reader)
                switch step {
                case .incomplete(let consumed): return used + consumed
                case .content(let range, let consumed):
                    used += consumed
                    take(UnsafeRawBufferPointer(rebasing: rest[range]), upload, reader)
                case .end(let consumed):
                    used += consumed
                    endBody(upload)
                case .failed(let text):
                    upload?.abandon()
                    keepsAlive = false
                    respond(ErrorPage.response(400, "The request's body is malformed: \(text)."))
                    return bytes.count
                }
            }
        }
        if case .body(let upload, let reader) = place, reader.remaining == 0 { endBody(upload) }
        return used
    }

    private func handle(_ request: HTTPRequestHead) {
        requestCount += 1
        isHead = request.method == "HEAD"
        isOld = request.minorVersion == 0
        let connection = request.headers.contains("close", in: "Connection")
        keepsAlive = !isOld && !connection && requestCount < maximumRequests
        let reader = HTTPBodyReader(request)
        // In HTTP/1.0 it means nothing (RFC 9110 §10.1.1).
        let expects = isOld ? nil : request["Expect"]
        if let expects, expects.lowercased() != "100-continue" {
            keepsAlive = false
            return respond(ErrorPage.response(417, "Only 100-continue can be expected."))
        }
        if requestCount > 1, let refusal = gate?(request) {
            // On a connection of its own it can try again.
            keepsAlive = false
            return respond(refusal)
        }
        let service = Self.service(for: request, in: services)
        if let service, !allowsHost(request, service.isSensitive) {
            let text =
                "This server does not answer by that name: ask by its IP address, or have the name added to its hosts."
            return discard(behind: ErrorPage.response(421, text), reader, isWaiting: expects != nil)
        }
        let reply =
            service?.reply(to: request, isSecure: isSecure)
            ?? .respond(ErrorPage.response(404, "There is nothing at this address."))
        switch reply {
        case .receive(let upload):
            if expects != nil { output += Array("HTTP/1.1 100 Continue\r\n\r\n".utf8) }
            place = .body(upload, reader)
            if reader.remaining == 0 { endBody(upload) }
        case .respond(let response):
            discard(behind: response, reader, isWaiting: expects != nil)
        }
    }

    /// Answers a request whose body, or the rest of it, is of no use.
    private func discard(behind response: HTTPResponse, _ reader: HTTPBodyReader, isWaiting: Bool) {
        if let remaining = reader.remaining, remaining == 0 { return respond(response) }
        // A client that waits for "100 Continue" sends nothing else if it is sensible, but nobody knows.
        guard !isWaiting, reader.remaining ?? 0 <= Self.discardLimit else {
            keepsAlive = false
            return respond(response)
        }
        pendingResponse = response
        discarded = 0
        place = .body(nil, reader)
    }

    private func take(_ bytes: UnsafeRawBufferPointer, _ upload: HTTPUpload?, _ reader: HTTPBodyReader) {
        guard let upload else {
            discarded += UInt64(bytes.count)
            if discarded > Self.discardLimit {
                keepsAlive = false
                endBody(nil)
            }
            return
        }
        guard let response = upload.write(bytes) else { return }
        upload.abandon()
        discard(behind: response, reader, isWaiting: false)
    }

    private func endBody(_ upload: HTTPUpload?) {
        if let response = pendingResponse {
            pendingResponse = nil
            respond(response)
        } else if let upload {
            respond(upload.finish())
        }
    }

    // MARK: Responses

    private func respond(_ response: HTTPResponse) {
        place = .response
        var lines = response.headers
        lines.append(HTTPHeader("Date", HTTPDate.text(now())))
        isChunked = false
        var body: [UInt8] = []
        let hasNoBody = response.status == 304 || response.status == 204
        switch response.body {
        case .none:
            if !hasNoBody { lines.append(HTTPHeader("Content-Length", "0")) }
        case .bytes(let bytes):
            body = bytes
            lines.append(HTTPHeader("Content-Length", "\(bytes.count)"))
        case .stream(let source):
            stream = source
            if let length = source.length {
                lines.append(HTTPHeader("Content-Length", "\(length)"))
            } else if !isOld {
                isChunked = true
                lines.append(HTTPHeader("Transfer-Encoding", "chunked"))
            }
        }
        if !keepsAlive { lines.append(HTTPHeader("Connection", "close")) }
        output += Array("HTTP/1.1 \(response.status) \(HTTPStatus.reason(response.status))\r\n".utf8)
        for line in lines where line.isValid { output += Array("\(line.name): \(line.value)\r\n".utf8) }
        output += [0x0D, 0x0A]
        if isHead || hasNoBody {
            stream = nil
        } else {
            output += body
        }
    }

    /// Puts bytes to be sent at the buffer's start: how many; 0: nothing now. With `usingRegions`, parts of files are left
    /// to whoever sends `region`.
    public func fill(_ buffer: UnsafeMutableRawBufferPointer, usingRegions: Bool = true) -> Int {
        var used = takeOutput(buffer)
        while used < buffer.count, let stream, !usingRegions || region == nil {
            // Room for a chunk's size line and end.
            let frame = isChunked ? 20 : 0
            guard buffer.count - used > frame + 1024 || (used == 0 && buffer.count > frame) else { break }
            let start = used + (isChunked ? 10 : 0)
            let room = UnsafeMutableRawBufferPointer(rebasing: buffer[start..<(buffer.count - (isChunked ? 10 : 0))])
            guard let count = stream.read(into: room) else {
                // What was promised cannot be kept: the client sees that the connection breaks.
                abandon()
                return used
            }
            if count == 0 {
                self.stream = nil
                if isChunked { output += Array("0\r\n\r\n".utf8) }
                used += takeOutput(UnsafeMutableRawBufferPointer(rebasing: buffer[used...]))
                break
            }
            used += isChunked ? chunk(buffer, used, count) : count
        }
        if !hasOutput { endResponse() }
        return used
    }

    /// Frames a chunk whose content lies ten bytes behind `start`.
    private func chunk(_ buffer: UnsafeMutableRawBufferPointer, _ start: Int, _ count: Int) -> Int {
        let digits = Array(HexDigit.text(UInt64(count)).utf8)
        let head = [UInt8](repeating: UInt8(ascii: "0"), count: 8 - digits.count) + digits + [0x0D, 0x0A]
        for (index, byte) in head.enumerated() { buffer[start + index] = byte }
        buffer[start + 10 + count] = 0x0D
        buffer[start + 11 + count] = 0x0A
        return count + 12
    }

    /// A part of a file that is due now and can be sent as it lies there.
    public var region: FileRegion? {
        outputStart < output.count || isChunked ? nil : stream?.region
    }

    /// So many bytes of `region` were sent.
    public func advance(_ count: Int) {
        guard let stream else { return }
        stream.advance(count)
        if stream.isAtEnd { self.stream = nil }
        if !hasOutput { endResponse() }
    }

    private func takeOutput(_ buffer: UnsafeMutableRawBufferPointer) -> Int {
        let count = min(buffer.count, output.count - outputStart)
        guard count > 0 else { return 0 }
        output.withUnsafeBytes {
            buffer.copyMemory(from: UnsafeRawBufferPointer(rebasing: $0[outputStart..<(outputStart + count)]))
        }
        outputStart += count
        if outputStart == output.count {
            output = []
            outputStart = 0
        }
        return count
    }

    private func endResponse() {
        guard case .response = place else { return }
        place = keepsAlive ? .head : .ended
        parser = HTTPHeadParser(.request, maximum: maximumHead)
    }
}
