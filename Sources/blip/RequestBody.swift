import CBLIP
import Glibc

/// Where a request's body comes from.
struct RequestBody {
    private enum Source {
        case none
        case text(String)
        case file(Int32, UInt64)
        case stream(Int32)
    }

    private let source: Source

    /// Bytes, if that is known before the end.
    var size: UInt64? {
        switch source {
        case .none: 0
        case .text(let text): UInt64(text.utf8.count)
        case .file(_, let size): size
        case .stream: nil
        }
    }

    init(_ arguments: Arguments) throws(Failure) {
        let text = arguments.value("--data")
        let path = arguments.value("--file")
        let standardInput = arguments.operands.count > 2
        if standardInput && arguments.operands[2] != "-" {
            throw .usage(
                "unexpected argument \(Terminal.quote(arguments.operands[2])): the body comes with -d TEXT, -f FILE, "
                    + "or - for standard input")
        }
        if [text != nil, path != nil, standardInput].filter({ $0 }).count > 1 {
            throw .usage("the body comes from one place: -d TEXT, -f FILE, or - for standard input")
        }
        if let text {
            source = .text(text)
        } else if let path, path != "-" {
            let (descriptor, size) = try File.openForReading(path)
            source = size.map { .file(descriptor, $0) } ?? .stream(descriptor)
        } else if path != nil || standardInput {
            guard fcntl(STDIN_FILENO, F_GETFL) >= 0 else {
                throw .usage("cannot read standard input: \(Output.reason)", status: BLIP_ERROR_FILE)
            }
            source = .stream(STDIN_FILENO)
        } else {
            source = .none
        }
    }

    func attach(to message: OpaquePointer) throws(Failure) {
        switch source {
        case .none:
            break
        case .text(let text):
            try Library.check(text.withSlice { blip_message_set_body(message, $0) }, "use the body")
        case .file(let descriptor, _):
            try Library.check(
                blip_message_append_body_file(message, descriptor, 0, UInt64.max, true), "send the file")
        case .stream(let descriptor):
            let pipe = BodyPipe(descriptor, message)
            try Library.check(pipe.attach(), "send the stream")
        }
    }
}
