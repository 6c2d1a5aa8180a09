import CBLIP
import Glibc

/// Where a reply's body goes: standard output, a file, or memory for JSON; the text of an error reply is kept.
final class ReplySink {
    private static let keptLimit = 64 << 20
    private static let errorTextLimit = 16 << 10

    private let reply: Reply
    private let file: Int32?
    private let path: String?
    private let keepsBody: Bool
    let writesToTerminal: Bool
    private var filter = TerminalFilter()
    private var kept: [UInt8] = []
    private var size: UInt64 = 0
    private var lastByte: UInt8 = 0

    init(_ reply: Reply, file: Int32?, path: String?, keepsBody: Bool) {
        self.reply = reply
        self.file = file
        self.path = path
        self.keepsBody = keepsBody && file == nil
        writesToTerminal = file == nil && !keepsBody && !reply.isError && Terminal.isTerminal(STDOUT_FILENO)
        if let file, !reply.isError { File.empty(file) }
    }

    /// For a message about a reply that broke off.
    var remark: String {
        guard let path, !reply.isError else { return "" }
        return "; \(Terminal.quote(path)) is incomplete"
    }

    /// The one-line text of an error reply; nil for others.
    var errorText: String? {
        guard reply.isError else { return nil }
        return reply.errorText(kept)
    }

    func take(_ bytes: UnsafeRawBufferPointer) throws(Failure) {
        size += UInt64(bytes.count)
        lastByte = bytes.last ?? lastByte
        if reply.isError {
            kept.append(contentsOf: bytes.prefix(max(0, Self.errorTextLimit - kept.count)))
        } else if let file {
            guard Output.write(bytes, to: file) else {
                throw .usage("cannot write \(Terminal.quote(path ?? "")): \(Output.reason)", status: BLIP_ERROR_FILE)
            }
        } else if keepsBody {
            guard kept.count + bytes.count <= Self.keptLimit else {
                throw .usage(
                    "the reply's body has more than \(Number.bytes(UInt64(Self.keptLimit))), too much for JSON "
                        + "(write it to a file with --output)", status: BLIP_ERROR_LIMIT)
            }
            kept.append(contentsOf: bytes)
        } else {
            let isWritten =
                writesToTerminal
                ? Output.write(filter.feed(bytes, atEnd: false), to: STDOUT_FILENO)
                : Output.write(bytes, to: STDOUT_FILENO)
            guard isWritten else { throw Self.outputFailure() }
        }
    }

    /// After the last byte.
    func finish() throws(Failure) {
        if writesToTerminal {
            var rest = filter.feed(UnsafeRawBufferPointer(start: nil, count: 0), atEnd: true)
            if size > 0 && lastByte != UInt8(ascii: "\n") { rest += "\n" }
            guard Output.write(rest, to: STDOUT_FILENO) else { throw Self.outputFailure() }
        }
        if let file, close(file) != 0 {
            throw .usage("cannot write \(Terminal.quote(path ?? "")): \(Output.reason)", status: BLIP_ERROR_FILE)
        }
    }

    private static func outputFailure() -> Failure {
        .usage("cannot write to standard output: \(Output.reason)", status: BLIP_ERROR_FILE)
    }

    func json(seconds: Double) throws(Failure) -> String {
        try finish()
        var json = JSONWriter()
        json.object { json in
            json.field("type", reply.isError ? "error" : "reply")
            json.field("number", reply.number)
            if reply.isError {
                json.field("domain", reply.domain)
                json.field("code", reply.code)
                json.field("text", String(decoding: kept, as: UTF8.self))
            }
            json.objectField("properties") { json in
                var seen: Set<String> = []
                for (key, value) in reply.properties where seen.insert(key).inserted {
                    json.field(key, value)
                }
            }
            json.arrayField("flags", reply.flags)
            json.field("size", size)
            if let path, !reply.isError {
                json.field("output", path)
            } else if !reply.isError {
                if let text = String(validating: kept, as: UTF8.self) {
                    json.field("body", text)
                } else {
                    json.field("bodyBase64", Base64.encode(kept))
                }
            }
            json.field("milliseconds", seconds * 1000, decimals: 3)
        }
        return json.text
    }
}
