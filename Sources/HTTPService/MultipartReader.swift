import WebSocketProtocol

/// Takes a body of multipart/form-data apart as it comes (RFC 7578, RFC 2046 §5.1).
struct MultipartReader {
    enum Step {
        case needMore
        /// A part begins: its field's name, and the name of its file if it is one.
        case part(field: String, file: [UInt8]?)
        /// Bytes of the current part.
        case content(ArraySlice<UInt8>)
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
    /// Where in the buffer begins what was not looked at.
    private var start = 0
    private var place = Place.preamble

    init(boundary: String) {
        delimiter = Array("\r\n--\(boundary)".utf8)
        // As if a line end stood in front of everything.
        buffer = [0x0D, 0x0A]
    }

    /// The boundary of a content type; nil if it is not multipart/form-data, or has none that is allowed.
    static func boundary(of type: String) -> String? {
        let parts = Array(type.utf8).split(separator: UInt8(ascii: ";"), maxSplits: 1)
        guard parts.count == 2, word(parts[0]) == "multipart/form-data",
            let value = parameter("boundary", in: parts[1]), (1...70).contains(value.count),
            value.allSatisfy({ $0 >= 0x20 && $0 < 0x7F })
        else { return nil }
        return String(decoding: value, as: UTF8.self)
    }

    mutating func feed(_ bytes: UnsafeRawBufferPointer) {
        // Here and nowhere else, so that many small parts do not move what is behind them.
        buffer.removeFirst(start)
        start = 0
        buffer += bytes
    }

    /// What comes next in what was fed; call until it needs more.
    mutating func next() -> Step {
        switch place {
        case .preamble:
            guard let end = find(delimiter) else {
                start = max(start, buffer.count - delimiter.count)
                return .needMore
            }
            start = end + delimiter.count
            place = .afterBoundary
            return next()
        case .afterBoundary:
            if buffer[start...].starts(with: [0x2D, 0x2D]) {
                place = .done
                return .end
            }
            // Spaces may stand behind a boundary.
            guard let end = find([0x0D, 0x0A]) else {
                return buffer.count - start > 256 ? .failed("a boundary's line that is too long") : .needMore
            }
            guard buffer[start..<end].allSatisfy({ $0 == 0x20 || $0 == 0x09 }) else {
                return .failed("text behind a boundary")
            }
            // The head's own line end is found again behind it.
            start = end
            place = .head
            return next()
        case .head:
            let end = find([0x0D, 0x0A, 0x0D, 0x0A])
            guard (end ?? buffer.count) - start <= Self.maximumHead else {
                return .failed("a part's head that is too large")
            }
            guard let end else { return .needMore }
            let disposition = Self.disposition(buffer[start..<end])
            start = end + 4
            guard let disposition, let field = Self.parameter("name", in: disposition) else {
                return .failed("a part without a name")
            }
            place = .content
            return .part(
                field: String(decoding: field, as: UTF8.self),
                file: Self.parameter("filename", in: disposition).map { Array($0) })
        case .content:
            let end = find(delimiter)
            if end == start {
                start += delimiter.count
                place = .afterBoundary
                return .partEnd
            }
            let safe = end ?? buffer.count - delimiter.count
            guard safe > start else { return .needMore }
            defer { start = safe }
            return .content(buffer[start..<safe])
        case .done: return .needMore
        }
    }

    /// Whether everything was read up to the last boundary.
    var isComplete: Bool {
        if case .done = place { return true }
        return false
    }

    /// Where a pattern begins in what is still to be looked at.
    private func find(_ pattern: [UInt8]) -> Int? {
        guard let first = pattern.first, buffer.count - start >= pattern.count else { return nil }
        return buffer.withUnsafeBufferPointer { bytes in
            pattern.withUnsafeBufferPointer { wanted in
                var index = start
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

    /// The value of a part's Content-Disposition; nil if its head has none.
    private static func disposition(_ head: ArraySlice<UInt8>) -> ArraySlice<UInt8>? {
        for line in head.split(separator: 0x0A) {
            guard let colon = line.firstIndex(of: UInt8(ascii: ":")), word(line[..<colon]) == "content-disposition"
            else {
                continue
            }
            return trim(line[(colon + 1)...])
        }
        return nil
    }

    /// A parameter's value, quoted or not. Browsers write quotes and line ends in names as %22, %0D, %0A.
    private static func parameter(_ name: String, in text: ArraySlice<UInt8>) -> ArraySlice<UInt8>? {
        let (quote, semicolon, equals) = (UInt8(ascii: "\""), UInt8(ascii: ";"), UInt8(ascii: "="))
        var rest = text
        while !rest.isEmpty {
            let key = rest.prefix { $0 != equals && $0 != semicolon }
            rest = rest[key.endIndex...]
            guard rest.first == equals else {
                rest = rest.dropFirst()
                continue
            }
            rest = rest.dropFirst()
            let isQuoted = rest.first == quote
            let value = isQuoted ? rest.dropFirst().prefix { $0 != quote } : rest.prefix { $0 != semicolon }
            if word(key) == name { return isQuoted ? value : trim(value) }
            rest = rest[value.endIndex...].drop { $0 != semicolon }.dropFirst()
        }
        return nil
    }

    /// In lower case, without white space around it.
    private static func word(_ bytes: ArraySlice<UInt8>) -> String {
        String(decoding: trim(bytes), as: UTF8.self).lowercased()
    }

    private static func trim(_ bytes: ArraySlice<UInt8>) -> ArraySlice<UInt8> {
        func isSpace(_ byte: UInt8) -> Bool { byte == 0x20 || byte == 0x09 || byte == 0x0D }
        let text = bytes.drop(while: isSpace)
        return text[..<(text.lastIndex { !isSpace($0) }.map { $0 + 1 } ?? text.startIndex)]
    }
}
