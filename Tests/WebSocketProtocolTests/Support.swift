import WebSocketProtocol

/// An event with its bytes copied, to compare.
enum Seen: Equatable {
    case fragment
    case binary([UInt8])
    case text(String)
    case ping([UInt8])
    case pong([UInt8])
    case close(UInt16?, String)
    case failed(UInt16)
}

/// A small generator with a seed, so that every run tests the same.
struct Random: RandomNumberGenerator {
    private var state: UInt64

    init(seed: UInt64) { state = seed }

    mutating func next() -> UInt64 {
        state &+= 0x9E37_79B9_7F4A_7C15
        var z = state
        z = (z ^ (z >> 30)) &* 0xBF58_476D_1CE4_E5B9
        z = (z ^ (z >> 27)) &* 0x94D0_49BB_1331_11EB
        return z ^ (z >> 31)
    }

    mutating func bytes(_ count: Int) -> [UInt8] {
        (0..<count).map { _ in UInt8(truncatingIfNeeded: next()) }
    }
}

/// Feeds pieces as a stream does: what is not consumed stays in front of what comes next. The parser sees a buffer of
/// exactly the bytes that are there, `shift` bytes off any alignment, so that a sanitizer sees every overrun.
func parse(
    _ pieces: [[UInt8]], role: WebSocketRole, maximum: Int = 1 << 20, shift: Int = 0
) -> (seen: [Seen], rest: Int, isSane: Bool) {
    var parser = WebSocketParser(role: role, maximumMessage: maximum)
    var held: [UInt8] = []
    var seen: [Seen] = []
    var isSane = true
    for piece in pieces {
        held += piece
        let memory = UnsafeMutableRawPointer.allocate(byteCount: held.count + shift, alignment: 8)
        defer { memory.deallocate() }
        let buffer = UnsafeMutableRawBufferPointer(start: memory + shift, count: held.count)
        buffer.copyBytes(from: held)
        var offset = 0
        loop: while true {
            let rest = buffer.count - offset
            let event = parser.next(UnsafeMutableRawBufferPointer(start: memory + shift + offset, count: rest))
            let used: Int
            switch event {
            case .incomplete(let needed):
                if needed <= rest { isSane = false }
                break loop
            case .consumed(let count):
                seen.append(.fragment)
                used = count
            case .binary(let bytes, let count):
                seen.append(.binary(Array(bytes)))
                used = count
            case .text(let bytes, let count):
                seen.append(.text(String(decoding: bytes, as: UTF8.self)))
                used = count
            case .ping(let bytes, let count):
                seen.append(.ping(Array(bytes)))
                used = count
            case .pong(let bytes, let count):
                seen.append(.pong(Array(bytes)))
                used = count
            case .close(let code, let reason, let count):
                seen.append(.close(code, String(decoding: reason, as: UTF8.self)))
                used = count
            case .failed(let code, _):
                seen.append(.failed(code))
                return (seen, rest, isSane)
            }
            if used < 0 || used > rest || (used == 0 && rest > 0) {
                isSane = false
                break loop
            }
            offset += used
            if rest == 0 { break }
        }
        held = Array(buffer[offset...])
    }
    return (seen, held.count, isSane)
}

/// A frame written by hand, so that the writer under test cannot hide an error of the parser.
func frame(_ first: UInt8, _ payload: [UInt8], mask: [UInt8]? = nil) -> [UInt8] {
    var bytes = [first]
    let bit: UInt8 = mask == nil ? 0 : 0x80
    if payload.count < 126 {
        bytes.append(bit | UInt8(payload.count))
    } else if payload.count < 65536 {
        bytes += [bit | 126, UInt8(payload.count >> 8), UInt8(payload.count & 255)]
    } else {
        bytes.append(bit | 127)
        bytes += (0..<8).map { UInt8(truncatingIfNeeded: payload.count >> (56 - 8 * $0)) }
    }
    guard let mask else { return bytes + payload }
    return bytes + mask + payload.enumerated().map { $1 ^ mask[$0 % 4] }
}

func text(_ bytes: [UInt8]) -> String { String(decoding: bytes, as: UTF8.self) }
