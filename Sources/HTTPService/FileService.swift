import CSystem
import Glibc
import Synchronization
import WebSocketProtocol

/// The files below a folder, for browsers and programs: pages of folders, downloads whole or in parts, and where it is
/// allowed uploads, new folders and removal.
public final class FileService: HTTPService {
    public struct Options: Sendable {
        /// Uploads, new folders and removal.
        public var isWritable = false
        /// Uploads may replace files.
        public var mayReplace = false
        /// Names that begin with a dot are shown and served.
        public var showsHidden = false
        /// The largest file that may be uploaded, in bytes.
        public var uploadLimit: UInt64 = 1 << 30

        public init() {}
    }

    /// The path of the root folder in URLs, with a slash at both ends.
    let prefix: String
    let root: RootFolder
    let options: Options
    /// Proves that a form came with a page of ours.
    let token: String

    /// - Parameters:
    ///   - prefix: where the files are in URLs, as "/files/".
    ///   - folder: the root folder.
    ///   - token: a secret of this service, which is in its pages' forms.
    /// Nil with an errno if the folder cannot be opened.
    public init?(prefix: String, folder: String, options: Options, token: String, code: inout Int32) {
        guard let root = RootFolder(folder, &code) else { return nil }
        self.root = root
        self.prefix = prefix.hasSuffix("/") ? prefix : prefix + "/"
        self.options = options
        self.token = token
    }

    public var isSensitive: Bool { options.isWritable }

    public func handles(path: String) -> Bool { path.hasPrefix(prefix) || path + "/" == prefix }

    public func reply(to request: HTTPRequestHead, isSecure: Bool) -> HTTPReply {
        let path = request.path
        guard path.utf8.count >= prefix.utf8.count else {
            return .respond(Self.redirect(to: prefix))
        }
        let rest = path.utf8.dropFirst(prefix.utf8.count)
        guard let place = FilePath(rest, showsHidden: options.showsHidden) else {
            return .respond(FileFailure(code: ENOENT).response)
        }
        switch request.method {
        case "GET", "HEAD": return .respond(get(place, request))
        case "PUT", "POST", "DELETE":
            guard options.isWritable else {
                return .respond(FileFailure(code: EROFS).response)
            }
            if let refusal = OriginCheck.refusal(request, isSecure: isSecure, token: token) { return .respond(refusal) }
            switch request.method {
            case "PUT": return put(place, request)
            case "POST": return post(place, request)
            default: return .respond(delete(place, request))
            }
        default:
            return .respond(
                notAllowed(place, "Files are read with GET\(options.isWritable ? ", written with PUT and POST" : "")."))
        }
    }

    /// The answer to a method that a file, or a folder, does not have.
    private func notAllowed(_ place: FilePath, _ text: String) -> HTTPResponse {
        let writing = place.isFolder ? "POST, DELETE" : "PUT, DELETE"
        let allowed = "GET, HEAD" + (options.isWritable ? ", " + writing : "")
        return ErrorPage.response(405, text, headers: [HTTPHeader("Allow", allowed)])
    }

    private static func redirect(to target: String) -> HTTPResponse {
        HTTPResponse(status: 301, headers: SitePolicy.page + [HTTPHeader("Location", target)])
    }

    // MARK: Reading

    private func get(_ place: FilePath, _ request: HTTPRequestHead) -> HTTPResponse {
        switch root.open(place) {
        case .failure(let failure): return failure.response
        case .success(let item) where item.facts.isFolder:
            guard place.isFolder else {
                _ = Glibc.close(item.descriptor)
                return Self.redirect(to: url(of: place) + "/")
            }
            return FolderPage(service: self, place: place, descriptor: item.descriptor, query: request.query).response()
        case .success(let item):
            guard !place.isFolder else {
                _ = Glibc.close(item.descriptor)
                return FileFailure(code: ENOENT).response
            }
            return FileResponse(item: item, name: place.name, request: request).response()
        }
    }

    /// The URL's path of a file or, without a slash at its end, of a folder.
    func url(of place: FilePath) -> String {
        prefix + place.names.map { PercentEncoding.encode($0) }.joined(separator: "/")
    }

    // MARK: Writing

    private func put(_ place: FilePath, _ request: HTTPRequestHead) -> HTTPReply {
        guard let parent = place.parent, !place.isFolder, let name = place.names.last else {
            return .respond(notAllowed(place, "A folder cannot be written to with PUT."))
        }
        guard request["Content-Range"] == nil else {
            return .respond(ErrorPage.response(400, "A file is stored as a whole, not in parts."))
        }
        if let length = request.headers["Content-Length"].flatMap({ UInt64($0) }), length > options.uploadLimit {
            return .respond(tooLarge)
        }
        if let refusal = condition(place, request) { return .respond(refusal) }
        switch FileWriter.make(in: parent, name: name, service: self) {
        case .failure(let failure): return .respond(failure.response)
        case .success(let writer):
            let location = url(of: place)
            let upload = PutUpload(writer: writer, tooLarge: tooLarge, location: location) { [self] in
                condition(place, request)
            }
            return .receive(upload)
        }
    }

    private func post(_ place: FilePath, _ request: HTTPRequestHead) -> HTTPReply {
        guard place.isFolder else { return .respond(notAllowed(place, "Forms are sent to folders.")) }
        guard let type = request.headers["Content-Type"], let boundary = MultipartReader.boundary(of: type) else {
            return .respond(ErrorPage.response(415, "A form has to come as multipart/form-data."))
        }
        if case .failure(let failure) = root.openFolder(place).map({ Glibc.close($0) }) {
            return .respond(failure.response)
        }
        return .receive(FormUpload(service: self, folder: place, boundary: boundary))
    }

    /// The answer if what is there now is not what the request expects.
    private func condition(_ place: FilePath, _ request: HTTPRequestHead) -> HTTPResponse? {
        guard FileCondition.isIn(request) else { return nil }
        let facts = try? root.look(at: place).get()
        let tags = facts.map { $0.isFolder ? [] : [$0.tag, $0.gzipTag] } ?? []
        let condition = FileCondition(request, tags: tags, modified: facts?.modified)
        return condition == .failed ? FileCondition.response : nil
    }

    private func delete(_ place: FilePath, _ request: HTTPRequestHead) -> HTTPResponse {
        guard let parent = place.parent, let name = place.names.last else {
            return FileFailure(code: EPERM).response
        }
        if let refusal = condition(place, request) { return refusal }
        if let failure = remove(name, from: parent) { return failure.response }
        return HTTPResponse(status: 204)
    }

    /// Removes a file, or a folder that is empty.
    func remove(_ name: [UInt8], from folder: FilePath) -> FileFailure? {
        inFolder(folder) { descriptor in
            name.withCString { text in
                if unlinkat(descriptor, text, 0) == 0 { return 0 }
                guard errno == EISDIR || errno == EPERM else { return errno }
                return unlinkat(descriptor, text, AT_REMOVEDIR) == 0 ? 0 : errno
            }
        }
    }

    func makeFolder(_ name: [UInt8], in folder: FilePath) -> FileFailure? {
        inFolder(folder) { descriptor in
            name.withCString { mkdirat(descriptor, $0, 0o777) == 0 ? 0 : errno }
        }
    }

    private func inFolder(_ folder: FilePath, _ body: (Int32) -> Int32) -> FileFailure? {
        switch root.openFolder(folder) {
        case .failure(let failure): return failure
        case .success(let descriptor):
            defer { _ = Glibc.close(descriptor) }
            let code = body(descriptor)
            return code == 0 ? nil : FileFailure(code: code)
        }
    }

    var tooLarge: HTTPResponse {
        ErrorPage.response(413, "The file is larger than the \(FileSize.text(options.uploadLimit)) that are allowed.")
    }
}

extension [UInt8] {
    /// As a C text; the bytes contain no NUL.
    func withCString<R>(_ body: (UnsafePointer<CChar>) -> R) -> R {
        let text = map { CChar(bitPattern: $0) } + [0]
        return text.withUnsafeBufferPointer { buffer in
            guard let base = buffer.baseAddress else { return body("") }
            return body(base)
        }
    }
}

extension HTTPRequestHead {
    /// The query of the target, as it was sent; empty without one.
    var query: Substring {
        let whole = pathAndQuery
        guard let mark = whole.utf8.firstIndex(of: UInt8(ascii: "?")) else { return "" }
        return whole[whole.utf8.index(after: mark)...]
    }
}
