/// Reads over the body of an answer that nobody wants (RFC 9112 §6.3), so that the connection can be used again.
public struct HTTPBodySkipper: Sendable {
    /// Where it is.
    public enum State: Sendable, Equatable {
        /// More has to come.
        case reading
        /// The body is over; the connection can be used for another request.
        case done
        /// The body is too large, ends with the connection, or is broken: the connection cannot be used again.
        case unusable
    }

    private enum Place: Sendable {
        case bytes
        case size
        /// Behind the semicolon of a chunk's size.
        case `extension`
        case sizeEnd
        case chunkEnd
        case chunkEndFeed
        case trailerStart
        case trailer
        case trailerFeed
        case lastFeed
    }

    /// Where it is.
    public private(set) var state: State
    private let isChunked: Bool
    private var place: Place
    /// Bytes left of the body, or of the chunk.
    private var left: UInt64 = 0
    private var hasDigits = false
    /// Bytes that may still come, framing included.
    private var budget: Int

    /// - Parameters:
    ///   - response: an answer to a GET.
    ///   - maximum: the most bytes to read over; it is cheaper to connect anew than to read more.
    public init(_ response: HTTPResponseHead, maximum: Int = 65536) {
        budget = maximum
        isChunked = response.headers["Transfer-Encoding"] != nil
        place = isChunked ? .size : .bytes
        let ends = response.headers.contains("close", in: "Connection")
        let codings = response.headers.elements("Transfer-Encoding")
        if ends || response.minorVersion != 1 || (response.status >= 100 && response.status < 200) {
            state = .unusable
        } else if response.status == 204 || response.status == 304 {
            state = .done
        } else if isChunked {
            state = codings.count == 1 && HTTPSyntax.equal(codings.first ?? "", "chunked") ? .reading : .unusable
        } else if let length = response.headers["Content-Length"].flatMap({ HTTPSyntax.number($0) }) {
            left = length
            state = length == 0 ? .done : length <= UInt64(max(0, maximum)) ? .reading : .unusable
        } else {
            state = .unusable
        }
    }

    /// Takes bytes of the body; how many of them were its own.
    public mutating func feed(_ bytes: UnsafeRawBufferPointer) -> Int {
        var index = 0
        while state == .reading, index < bytes.count {
            if place == .bytes {
                let count = Int(min(left, UInt64(bytes.count - index)))
                index += count
                left -= UInt64(count)
                spend(count)
                if left == 0, state == .reading {
                    if isChunked { place = .chunkEnd } else { state = .done }
                }
            } else {
                take(bytes[index])
                index += 1
                spend(1)
            }
        }
        return index
    }

    private mutating func spend(_ count: Int) {
        budget -= count
        if budget < 0, state == .reading { state = .unusable }
    }

    /// One byte of what is around the chunks (RFC 9112 §7.1).
    private mutating func take(_ byte: UInt8) {
        switch place {
        case .bytes: break
        case .size:
            if let digit = IPLiteral.hexValue(byte) {
                guard left < 1 << 48 else { return fail() }
                left = left << 4 | UInt64(digit)
                hasDigits = true
            } else if hasDigits, byte == 0x0D {
                place = .sizeEnd
            } else if hasDigits, byte == UInt8(ascii: ";") || HTTPSyntax.isSpace(byte) {
                place = .extension
            } else {
                fail()
            }
        case .extension:
            if byte == 0x0D { place = .sizeEnd } else if !HTTPSyntax.isValue(byte) { fail() }
        case .sizeEnd:
            guard byte == 0x0A else { return fail() }
            place = left == 0 ? .trailerStart : .bytes
            hasDigits = false
        case .chunkEnd:
            guard byte == 0x0D else { return fail() }
            place = .chunkEndFeed
        case .chunkEndFeed:
            guard byte == 0x0A else { return fail() }
            place = .size
        case .trailerStart:
            if byte == 0x0D { place = .lastFeed } else if HTTPSyntax.isToken(byte) { place = .trailer } else { fail() }
        case .trailer:
            if byte == 0x0D { place = .trailerFeed } else if !HTTPSyntax.isValue(byte) { fail() }
        case .trailerFeed:
            guard byte == 0x0A else { return fail() }
            place = .trailerStart
        case .lastFeed: state = byte == 0x0A ? .done : .unusable
        }
    }

    private mutating func fail() { state = .unusable }
}
