import WebSocketProtocol

/// Finds the body of a request in the bytes behind its head (RFC 9112 §6, §7.1).
///
/// Chunk extensions and trailers are skipped; a line of either may have 4,096 bytes.
struct HTTPBodyReader {
    enum Step {
        /// Nothing more can be done with these bytes; so many of them are done with.
        case incomplete(consumed: Int)
        /// Bytes of the body, and how many bytes were used for them.
        case content(Range<Int>, consumed: Int)
        /// The body has ended; so many bytes belonged to it.
        case end(consumed: Int)
        case failed(String)
    }

    private enum Place {
        case fixed(UInt64)
        case size
        case chunk(UInt64)
        case chunkEnd
        case trailer
        case done
    }

    private static let maximumLine = 4096
    private var place: Place
    private var trailerBytes = 0

    init(_ head: HTTPRequestHead) {
        if head["Transfer-Encoding"] != nil {
            place = .size
        } else {
            let length = head["Content-Length"].flatMap { UInt64($0) } ?? 0
            place = length == 0 ? .done : .fixed(length)
        }
    }

    /// Bytes of a body of known size that are still to come; nil if it is sent in chunks.
    var remaining: UInt64? {
        switch place {
        case .fixed(let left): left
        case .done: 0
        default: nil
        }
    }

    mutating func next(_ bytes: UnsafeRawBufferPointer) -> Step {
        switch place {
        case .done: return .end(consumed: 0)
        case .fixed(let left):
            guard !bytes.isEmpty else { return .incomplete(consumed: 0) }
            let count = Int(min(left, UInt64(bytes.count)))
            place = UInt64(count) == left ? .done : .fixed(left - UInt64(count))
            return .content(0..<count, consumed: count)
        case .chunk(let left):
            guard !bytes.isEmpty else { return .incomplete(consumed: 0) }
            let count = Int(min(left, UInt64(bytes.count)))
            place = UInt64(count) == left ? .chunkEnd : .chunk(left - UInt64(count))
            return .content(0..<count, consumed: count)
        case .chunkEnd:
            guard bytes.count >= 2 else { return .incomplete(consumed: 0) }
            guard bytes[0] == 0x0D, bytes[1] == 0x0A else { return .failed("a chunk that is longer than its size") }
            place = .size
            return .content(0..<0, consumed: 2)
        case .size:
            guard let end = lineEnd(bytes) else { return tooLong(bytes) }
            guard let size = chunkSize(UnsafeRawBufferPointer(rebasing: bytes[..<end])) else {
                return .failed("a chunk size that is not a number")
            }
            place = size == 0 ? .trailer : .chunk(size)
            return .content(0..<0, consumed: end + 2)
        case .trailer:
            guard let end = lineEnd(bytes) else { return tooLong(bytes) }
            trailerBytes += end + 2
            guard trailerBytes <= 4 * Self.maximumLine else { return .failed("trailers that are too large") }
            guard end > 0 else {
                place = .done
                return .end(consumed: 2)
            }
            guard bytes[..<end].allSatisfy(isText) else { return .failed("a trailer with a control character") }
            return .content(0..<0, consumed: end + 2)
        }
    }

    private func tooLong(_ bytes: UnsafeRawBufferPointer) -> Step {
        bytes.count > Self.maximumLine ? .failed("a chunk's line that is too long") : .incomplete(consumed: 0)
    }

    /// Where a line ends; nil if its end is not here.
    private func lineEnd(_ bytes: UnsafeRawBufferPointer) -> Int? {
        var index = 0
        let end = min(bytes.count, Self.maximumLine + 1)
        while index + 1 < end {
            if bytes[index] == 0x0D, bytes[index + 1] == 0x0A { return index }
            index += 1
        }
        return nil
    }

    private func chunkSize(_ line: UnsafeRawBufferPointer) -> UInt64? {
        let digits = line.prefix { HexDigit.value($0) != nil }
        guard (1...15).contains(digits.count) else { return nil }
        // An extension may follow, and spaces in front of it.
        let rest = line[digits.endIndex...].drop { $0 == 0x20 || $0 == 0x09 }
        guard rest.isEmpty || rest.first == UInt8(ascii: ";"), rest.allSatisfy(isText) else { return nil }
        return digits.reduce(0) { $0 << 4 | UInt64(HexDigit.value($1) ?? 0) }
    }

    /// No control character, above all no half of a line end, which others might take for a whole one.
    private func isText(_ byte: UInt8) -> Bool { (byte >= 0x20 && byte != 0x7F) || byte == 0x09 }
}
