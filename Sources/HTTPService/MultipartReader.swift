import WebSocketProtocol

/// Takes a body of multipart/form-data apart as it comes (RFC 7578, RFC 2046 §5.1).
struct MultipartReader {
    enum Step {
        case needMore
        /// A part begins: its field's name, and the name of its file if it is one.
        case part(field: String, file: String?)
        /// Bytes of the current part.
        case content([UInt8])
        case partEnd
        case end
        case failed(String)
    }

    private enum Place {
        case preamble
        case head
        case content
        case afterBoundary
        case done
    }

    private static let maximumHead = 8192
    /// What stands before each part but, in front of the first one, the line end.
    private let delimiter: [UInt8]
    private var buffer: [UInt8]
    private var place = Place.preamble

    init(boundary: String) {
        delimiter = Array("\r\n--\(boundary)".utf8)
        // As if a line end stood in front of everything.
        buffer = [0x0D, 0x0A]
    }

    /// The boundary of a content type; nil if it is not multipart/form-data, or has none that is allowed.
    static func boundary(of type: String) -> String? {
        let parts = type.split(separator: ";", maxSplits: 1).map(String.init)
        guard parts.count == 2, trim(parts[0]).lowercased() == "multipart/form-data" else { return nil }
        guard let value = parameter("boundary", in: parts[1]), (1...70).contains(value.utf8.count) else { return nil }
        return value.utf8.allSatisfy { $0 >= 0x20 && $0 < 0x7F } ? value : nil
    }

    mutating func feed(_ bytes: UnsafeRawBufferPointer) { buffer += bytes }

    /// What comes next in what was fed; call until it needs more.
    mutating func next() -> Step {
        switch place {
        case .preamble:
            guard let start = find(delimiter) else {
                keepTail()
                return .needMore
            }
            buffer.removeFirst(start + delimiter.count)
            place = .afterBoundary
            return next()
        case .afterBoundary:
            // Spaces may stand behind a boundary.
            guard let end = find([0x0D, 0x0A]) else {
                if buffer.starts(with: [0x2D, 0x2D]) {
                    place = .done
                    return .end
                }
                return buffer.count > 256 ? .failed("a boundary's line that is too long") : .needMore
            }
            if buffer.starts(with: [0x2D, 0x2D]) {
                place = .done
                return .end
            }
            guard buffer[..<end].allSatisfy({ $0 == 0x20 || $0 == 0x09 }) else {
                return .failed("text behind a boundary")
            }
            // The head's own line end is found again behind it.
            buffer.removeFirst(end)
            place = .head
            return next()
        case .head:
            guard let end = find([0x0D, 0x0A, 0x0D, 0x0A]) else {
                return buffer.count > Self.maximumHead ? .failed("a part's head that is too large") : .needMore
            }
            guard end <= Self.maximumHead else { return .failed("a part's head that is too large") }
            let head = String(decoding: buffer[..<end], as: UTF8.self)
            buffer.removeFirst(end + 4)
            guard let disposition = Self.disposition(head), let field = Self.parameter("name", in: disposition) else {
                return .failed("a part without a name")
            }
            place = .content
            return .part(field: field, file: Self.parameter("filename", in: disposition))
        case .content:
            if let start = find(delimiter) {
                if start > 0 {
                    let content = Array(buffer[..<start])
                    buffer.removeFirst(start)
                    return .content(content)
                }
                buffer.removeFirst(delimiter.count)
                place = .afterBoundary
                return .partEnd
            }
            let safe = buffer.count - delimiter.count
            guard safe > 0 else { return .needMore }
            let content = Array(buffer[..<safe])
            buffer.removeFirst(safe)
            return .content(content)
        case .done: return .needMore
        }
    }

    /// Whether everything was read up to the last boundary.
    var isComplete: Bool {
        if case .done = place { return true }
        return false
    }

    private mutating func keepTail() {
        if buffer.count > delimiter.count { buffer.removeFirst(buffer.count - delimiter.count) }
    }

    private func find(_ pattern: [UInt8]) -> Int? {
        guard let first = pattern.first, buffer.count >= pattern.count else { return nil }
        return buffer.withUnsafeBufferPointer { bytes in
            pattern.withUnsafeBufferPointer { wanted in
                var index = 0
                let last = bytes.count - wanted.count
                while index <= last {
                    if bytes[index] == first, (1..<wanted.count).allSatisfy({ bytes[index + $0] == wanted[$0] }) {
                        return index
                    }
                    index += 1
                }
                return nil
            }
        }
    }

    private static func disposition(_ head: String) -> String? {
        for line in head.split(whereSeparator: \.isNewline) {
            guard let colon = line.firstIndex(of: ":"), trim(line[..<colon]).lowercased() == "content-disposition"
            else {
                continue
            }
            return String(line[line.index(after: colon)...])
        }
        return nil
    }

    /// A parameter's value, quoted or not. Browsers write quotes and line ends in names as %22, %0D, %0A.
    private static func parameter(_ name: String, in text: String) -> String? {
        var rest = Substring(text)
        while !rest.isEmpty {
            let key = rest.prefix { $0 != "=" && $0 != ";" }
            rest = rest.dropFirst(key.count)
            guard rest.first == "=" else {
                rest = rest.dropFirst()
                continue
            }
            rest = rest.dropFirst()
            let value: Substring
            if rest.first == "\"" {
                value = rest.dropFirst().prefix { $0 != "\"" }
                rest = rest.dropFirst(value.count + 2)
                rest = rest.drop { $0 != ";" }
            } else {
                value = rest.prefix { $0 != ";" }
                rest = rest.dropFirst(value.count)
            }
            rest = rest.dropFirst()
            if trim(key).lowercased() == name { return String(value) }
        }
        return nil
    }

    private static func trim(_ text: some StringProtocol) -> String {
        String(text.drop { $0 == " " || $0 == "\t" }.reversed().drop { $0 == " " || $0 == "\t" }.reversed())
    }
}
