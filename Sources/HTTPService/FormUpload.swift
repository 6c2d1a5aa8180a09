import Glibc
import WebSocketProtocol

/// A form of a folder's page: files to be stored, a folder to be made, or a name to be removed.
///
/// The token has to come first, so that nothing is written without it.
final class FormUpload: HTTPUpload {
    private let service: FileService
    private let folder: FilePath
    private var reader: MultipartReader
    private var field = ""
    private var value: [UInt8] = []
    private var writer: FileWriter?
    private var isTrusted = false
    private static let maximumValue = 4096

    init(service: FileService, folder: FilePath, boundary: String) {
        self.service = service
        self.folder = folder
        reader = MultipartReader(boundary: boundary)
        super.init()
    }

    override func write(_ bytes: UnsafeRawBufferPointer) -> HTTPResponse? {
        reader.feed(bytes)
        while true {
            switch reader.next() {
            case .needMore, .end: return nil
            case .failed(let text): return ErrorPage.response(400, "The form is malformed: \(text).")
            case .part(let name, let file):
                if let response = begin(name, file) { return response }
            case .content(let content):
                if let response = take(content) { return response }
            case .partEnd:
                if let response = endPart() { return response }
            }
        }
    }

    override func finish() -> HTTPResponse {
        guard reader.isComplete else { return ErrorPage.response(400, "The form is not complete.") }
        return HTTPResponse(
            status: 303,
            headers: SitePolicy.page + [
                HTTPHeader("Location", service.url(of: folder) + (folder.names.isEmpty ? "" : "/"))
            ])
    }

    override func abandon() { writer = nil }

    private func begin(_ name: String, _ file: [UInt8]?) -> HTTPResponse? {
        field = name
        value = []
        guard name == "file" else { return nil }
        guard isTrusted else { return OriginCheck.refused }
        // A form without a chosen file sends one without a name.
        guard let file, !file.isEmpty else { return nil }
        // Some send a path: its last part is the name.
        let base =
            file.split(whereSeparator: { $0 == UInt8(ascii: "/") || $0 == UInt8(ascii: "\\") }).last ?? file[...]
        switch FileWriter.make(in: folder, name: Array(base), service: service) {
        case .failure(let failure): return failure.response
        case .success(let writer):
            self.writer = writer
            return nil
        }
    }

    private func take(_ content: ArraySlice<UInt8>) -> HTTPResponse? {
        if let writer {
            guard let failure = content.withUnsafeBytes({ writer.write($0) }) else { return nil }
            return failure.response.status == 413 ? service.tooLarge : failure.response
        }
        guard field != "file" else { return nil }
        value += content
        return value.count <= Self.maximumValue ? nil : ErrorPage.response(400, "A field of the form is too long.")
    }

    private func endPart() -> HTTPResponse? {
        switch field {
        case "token":
            isTrusted = OriginCheck.matches(String(decoding: value, as: UTF8.self), service.token)
            return isTrusted ? nil : OriginCheck.refused
        case "file":
            defer { writer = nil }
            return writer?.finish()?.response
        case "folder", "remove":
            guard isTrusted else { return OriginCheck.refused }
            // The page encodes the names that are there: some have bytes that no form can carry.
            let given = field == "remove" ? PercentEncoding.decode(value) : value
            guard let name = given, FilePath.isName(name),
                service.options.showsHidden || name.first != UInt8(ascii: ".")
            else { return ErrorPage.response(400, "That cannot be a name.") }
            let failure = field == "folder" ? service.makeFolder(name, in: folder) : service.remove(name, from: folder)
            return failure?.response
        default: return nil
        }
    }
}
