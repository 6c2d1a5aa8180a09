import Glibc
import WebSocketProtocol

/// The answer to GET and HEAD of a file: conditions first (RFC 9110 §13.2.2), then ranges, then the whole.
struct FileResponse {
    let item: RootFolder.Item
    let name: String
    let request: HTTPRequestHead

    private static let gzipSizes: ClosedRange<UInt64> = 1024...(64 << 20)

    private var facts: FileFacts { item.facts }

    func response() -> HTTPResponse {
        let type = ContentType.of(name)
        let usesGzip =
            ContentType.isCompressible(type.split(separator: ";").first.map(String.init) ?? type)
            && Self.gzipSizes.contains(facts.size) && request["Range"] == nil && acceptsGzip
        let tag = usesGzip ? facts.gzipTag : facts.tag
        var headers =
            SitePolicy.file + [
                HTTPHeader("ETag", tag), HTTPHeader("Last-Modified", HTTPDate.text(facts.modified)),
                HTTPHeader("Accept-Ranges", "bytes"), HTTPHeader("Vary", "Accept-Encoding"),
                HTTPHeader("Cache-Control", "no-cache"),
            ]
        switch FileCondition(request, tags: [tag], modified: facts.modified) {
        case .met: break
        case .notModified:
            _ = Glibc.close(item.descriptor)
            return HTTPResponse(status: 304, headers: headers)
        case .failed:
            _ = Glibc.close(item.descriptor)
            return FileCondition.response
        }
        let disposition = request.query == "download" ? "attachment" : "inline"
        headers.append(
            HTTPHeader("Content-Disposition", "\(disposition); filename*=UTF-8''\(PercentEncoding.encode(name.utf8))"))
        if usesGzip, let body = GzipBody(descriptor: item.descriptor) {
            headers += [HTTPHeader("Content-Type", type), HTTPHeader("Content-Encoding", "gzip")]
            return HTTPResponse(status: 200, headers: headers, body: .stream(body))
        }
        switch ranges(tag) {
        case .whole:
            headers.append(HTTPHeader("Content-Type", type))
            return stream(200, headers, facts.size == 0 ? [] : [.range(0..<facts.size)])
        case .unsatisfiable:
            _ = Glibc.close(item.descriptor)
            return ErrorPage.response(
                416, "The file has \(facts.size) bytes, and none of them was asked for.",
                headers: [HTTPHeader("Content-Range", "bytes */\(facts.size)")])
        case .parts(let parts) where parts.count == 1:
            headers += [HTTPHeader("Content-Type", type), HTTPHeader("Content-Range", contentRange(parts[0]))]
            return stream(206, headers, [.range(parts[0])])
        case .parts(let parts):
            // Who writes a file cannot know what its parts will be told apart by.
            var generator = SystemRandomNumberGenerator()
            let boundary = "part-\(HexDigit.text(generator.next()))-\(HexDigit.text(generator.next()))"
            headers.append(HTTPHeader("Content-Type", "multipart/byteranges; boundary=\(boundary)"))
            var pieces: [FileBody.Piece] = []
            for part in parts {
                let head = "--\(boundary)\r\nContent-Type: \(type)\r\nContent-Range: \(contentRange(part))\r\n\r\n"
                let start = pieces.isEmpty ? head : "\r\n" + head
                pieces += [.bytes(Array(start.utf8)), .range(part)]
            }
            pieces.append(.bytes(Array("\r\n--\(boundary)--\r\n".utf8)))
            return stream(206, headers, pieces)
        }
    }

    private func stream(_ status: Int, _ headers: [HTTPHeader], _ pieces: [FileBody.Piece]) -> HTTPResponse {
        HTTPResponse(
            status: status, headers: headers, body: .stream(FileBody(descriptor: item.descriptor, pieces: pieces)))
    }

    private func contentRange(_ range: Range<UInt64>) -> String {
        "bytes \(range.lowerBound)-\(range.upperBound - 1)/\(facts.size)"
    }

    private func ranges(_ tag: String) -> ByteRanges {
        guard request.method == "GET", request.headers.all("Range").count == 1, let range = request["Range"] else {
            return .whole
        }
        if let condition = request["If-Range"] {
            let holds = condition.hasPrefix("\"") ? condition == tag : HTTPDate.parse(condition) == facts.modified
            guard holds else { return .whole }
        }
        return ByteRanges.parse(range, size: facts.size)
    }

    private var acceptsGzip: Bool {
        request.headers.elements("Accept-Encoding").contains { element in
            let parts = element.split(separator: ";").map { $0.filter { $0 != " " }.lowercased() }
            guard let coding = parts.first, coding == "gzip" || coding == "x-gzip" else { return false }
            return !parts.dropFirst().contains { $0 == "q=0" || $0 == "q=0.0" || $0 == "q=0.00" || $0 == "q=0.000" }
        }
    }
}
