import Foundation
import WebSocketProtocol

@testable import HTTPService

/// A response as a client reads it.
struct Answer {
    var status = 0
    var headers: [String: String] = [:]
    var body: [UInt8] = []
    var text: String { String(decoding: body, as: UTF8.self) }
}

/// A session over a scratch folder, fed with texts.
final class Site {
    let folder: URL
    let service: FileService
    let session: HTTPSession

    init(_ options: FileService.Options = FileService.Options(), prefix: String = "/files/") throws {
        folder = FileManager.default.temporaryDirectory.appendingPathComponent("site-\(UUID().uuidString)")
        try FileManager.default.createDirectory(at: folder, withIntermediateDirectories: true)
        var code: Int32 = 0
        guard
            let service = FileService(
                prefix: prefix, folder: folder.path, options: options, token: "secret-token", code: &code)
        else { throw CocoaError(.fileReadUnknown) }
        self.service = service
        session = HTTPSession(services: [service, SiteAssets()], isSecure: false, maximumHead: 16384) { 784_111_777 }
    }

    deinit { try? FileManager.default.removeItem(at: folder) }

    func write(_ name: String, _ content: String) throws {
        let url = folder.appendingPathComponent(name)
        try FileManager.default.createDirectory(at: url.deletingLastPathComponent(), withIntermediateDirectories: true)
        try Data(content.utf8).write(to: url)
    }

    /// Without FileManager, which never lets go of what it has read of an empty file.
    func read(_ name: String) -> String? {
        guard let file = fopen(folder.appendingPathComponent(name).path, "r") else { return nil }
        defer { fclose(file) }
        var bytes = [UInt8](repeating: 0, count: 1 << 20)
        return String(decoding: bytes[..<fread(&bytes, 1, bytes.count, file)], as: UTF8.self)
    }

    var names: [String] { ((try? FileManager.default.contentsOfDirectory(atPath: folder.path)) ?? []).sorted() }

    /// Everything that comes out now; regions of files are read as the kernel would send them.
    func drain(bufferSize: Int = 4096) -> [UInt8] {
        var result: [UInt8] = []
        var buffer = [UInt8](repeating: 0, count: bufferSize)
        while session.hasOutput {
            if let region = session.region {
                let count = min(Int(region.count), 100_000)
                var bytes = [UInt8](repeating: 0, count: count)
                let got = pread(region.descriptor, &bytes, count, off_t(region.offset))
                guard got > 0 else { break }
                result += bytes[..<got]
                session.advance(got)
                continue
            }
            let count = buffer.withUnsafeMutableBytes { session.fill($0) }
            if count == 0, session.region == nil { break }
            result += buffer[..<count]
        }
        return result
    }

    /// Feeds bytes in pieces of `size`, taking responses as they come.
    func exchange(_ bytes: [UInt8], pieces size: Int = .max) -> [UInt8] {
        var held: [UInt8] = []
        var result: [UInt8] = []
        var next = 0
        while next < bytes.count || !held.isEmpty {
            let end = size == .max ? bytes.count : min(bytes.count, next + size)
            held += bytes[next..<end]
            let isLast = end == bytes.count
            next = end
            var used = -1
            while used != 0, !held.isEmpty {
                used = held.withUnsafeBytes { session.receive($0) }
                held.removeFirst(used)
                let output = drain()
                result += output
                if !output.isEmpty { used = max(used, 1) }
            }
            if isLast { break }
        }
        return result
    }

    func request(_ text: String, pieces size: Int = .max, isHead: Bool = false) -> [Answer] {
        Self.parse(exchange(Array(text.utf8), pieces: size), isHead: isHead)
    }

    func get(_ path: String, _ headers: String = "") -> Answer {
        request("GET \(path) HTTP/1.1\r\nHost: a\r\n\(headers)\r\n").first ?? Answer()
    }

    static func parse(_ bytes: [UInt8], isHead: Bool = false) -> [Answer] {
        var answers: [Answer] = []
        var rest = bytes[...]
        while let end = find("\r\n\r\n", rest) {
            let lines = String(decoding: rest[..<end], as: UTF8.self).components(separatedBy: "\r\n")
            rest = rest[(end + 4)...]
            var answer = Answer()
            answer.status = Int(lines[0].split(separator: " ")[1]) ?? 0
            for line in lines.dropFirst() {
                guard let colon = line.firstIndex(of: ":") else { continue }
                answer.headers[line[..<colon].lowercased()] =
                    line[line.index(after: colon)...].trimmingCharacters(in: .whitespaces)
            }
            if answer.status == 100 { continue }
            if answer.headers["transfer-encoding"] == "chunked" {
                while let line = find("\r\n", rest) {
                    let size = Int(String(decoding: rest[..<line], as: UTF8.self), radix: 16) ?? 0
                    rest = rest[(line + 2)...]
                    answer.body += rest.prefix(size)
                    rest = rest.dropFirst(size + 2)
                    if size == 0 { break }
                }
            } else if !isHead, let length = answer.headers["content-length"].flatMap({ Int($0) }) {
                answer.body = Array(rest.prefix(length))
                rest = rest.dropFirst(length)
            }
            answers.append(answer)
        }
        return answers
    }

    private static func find(_ text: String, _ bytes: ArraySlice<UInt8>) -> Int? {
        let wanted = Array(text.utf8)
        guard bytes.count >= wanted.count else { return nil }
        return (bytes.startIndex...(bytes.endIndex - wanted.count)).first {
            bytes[$0..<($0 + wanted.count)].elementsEqual(wanted)
        }
    }
}
