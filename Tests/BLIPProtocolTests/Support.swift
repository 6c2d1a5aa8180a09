import Foundation
import Testing

@testable import BLIPProtocol

/// A small seeded generator, so that a failure can be repeated.
struct Seeded: RandomNumberGenerator {
    private var state: UInt64

    init(_ seed: UInt64) { state = seed &+ 0x9E37_79B9_7F4A_7C15 }

    mutating func next() -> UInt64 {
        state &+= 0x9E37_79B9_7F4A_7C15
        var z = state
        z = (z ^ (z >> 30)) &* 0xBF58_476D_1CE4_E5B9
        z = (z ^ (z >> 27)) &* 0x94D0_49BB_1331_11EB
        return z ^ (z >> 31)
    }
}

extension Array where Element == UInt8 {
    init(hex: String) {
        self = []
        var rest = Substring(hex)
        while rest.count >= 2 {
            append(UInt8(rest.prefix(2), radix: 16) ?? 0)
            rest = rest.dropFirst(2)
        }
    }

    var hex: String { map { String(format: "%02x", $0) }.joined() }
}

extension Message {
    /// Sets properties and body for sending.
    convenience init(
        _ kind: MessageKind = .request, _ properties: [(String, String)] = [], body: [UInt8] = [],
        flags: MessageFlags = [], number: UInt64 = 0
    ) {
        self.init()
        self.kind = kind
        self.flags = flags
        self.number = number
        for (key, value) in properties { add(key, value) }
        body.withUnsafeBytes { _ = self.body.append($0) }
    }

    func add(_ key: String, _ value: String) {
        Array(key.utf8).withUnsafeBytes { key in
            Array(value.utf8).withUnsafeBytes { value in _ = setProperty(key, value) }
        }
    }

    func get(_ key: String) -> String? {
        Array(key.utf8).withUnsafeBytes { key in property(key).map { String(decoding: $0, as: UTF8.self) } }
    }

    var allProperties: [[String]] {
        (0..<propertyCount).compactMap { index in
            property(at: index).map {
                [String(decoding: $0.key, as: UTF8.self), String(decoding: $0.value, as: UTF8.self)]
            }
        }
    }

    var bodyArray: [UInt8] { Array(incomingBody) }
}

extension Engine {
    convenience init(_ version: ProtocolVersion, limits: Limits = Limits(), level: Int32 = 6) {
        self.init(version: version, limits: limits, compressionLevel: level, makeMessage: { Message() })
    }

    /// Receives all of a frame.
    @discardableResult
    func receive(_ frame: [UInt8]) -> Event {
        var event = begin(frame)
        while case .suspended = event { event = continueFrame() }
        return event
    }

    /// Receives a copy of `frame` that lies inside a larger buffer with guard bytes, which must stay as they are.
    func begin(_ frame: [UInt8]) -> Event {
        var buffer = [UInt8](repeating: 0xA5, count: frame.count + 32)
        buffer.replaceSubrange(16..<16 + frame.count, with: frame)
        let event = buffer.withUnsafeMutableBytes {
            self.receive(UnsafeMutableRawBufferPointer(rebasing: $0[16..<16 + frame.count]))
        }
        #expect(buffer.prefix(16).allSatisfy { $0 == 0xA5 } && buffer.suffix(16).allSatisfy { $0 == 0xA5 })
        return event
    }

    /// The next frame and what belongs to it. Checks that nothing is written behind the room that is promised.
    func next(size: Int? = nil) -> (bytes: [UInt8], frame: OutgoingFrame) {
        let promised = state.pointee.limits.outgoingFrame + 64
        var buffer = [UInt8](repeating: 0xA5, count: promised + 64)
        let frame = buffer.withUnsafeMutableBytes {
            nextFrame(into: UnsafeMutableRawBufferPointer(rebasing: $0[..<promised]), size: size)
        }
        #expect(buffer.suffix(64).allSatisfy { $0 == 0xA5 }, "written behind the buffer")
        #expect(frame.count <= state.pointee.limits.outgoingFrame, "a frame above the limit")
        return (Array(buffer.prefix(frame.count)), frame)
    }

    /// All frames that can go now.
    func drain() -> [[UInt8]] {
        var frames: [[UInt8]] = []
        while hasOutput {
            let (bytes, frame) = next()
            if frame.count == 0 && frame.failure == nil { break }
            if frame.count > 0 { frames.append(bytes) }
        }
        return frames
    }
}

extension Event {
    var completed: Message? {
        if case .complete(let message) = self { return message }
        return nil
    }

    var error: ProtocolError? {
        if case .failed(let error) = self { return error }
        return nil
    }

    var isNone: Bool {
        if case .none = self { return true }
        return false
    }
}

/// The header of a frame of version 2 or 3.
struct FrameHead: Equatable {
    var number: UInt64
    var flags: UInt64
    /// Bytes behind the header.
    var payload: Int

    var type: UInt64 { flags & 7 }
    var moreComing: Bool { flags & 0x40 != 0 }

    init?(_ frame: [UInt8]) {
        let read = frame.withUnsafeBytes { raw -> (UInt64, UInt64, Int)? in
            guard let base = raw.baseAddress else { return nil }
            var at = base
            let end = base + raw.count
            guard let number = Varint.read(&at, end), let flags = Varint.read(&at, end) else { return nil }
            return (number, flags, end - at)
        }
        guard let read else { return nil }
        (number, flags, payload) = read
    }
}

/// A body source that gives what a script says.
final class ScriptedSource: BodySource {
    enum Step {
        case give([UInt8])
        case wait
        case fail
    }

    private var steps: [Step]
    private let known: UInt64?

    init(_ steps: [Step], known: UInt64? = nil) {
        self.steps = steps
        self.known = known
    }

    private var given: UInt64 = 0
    override var remaining: UInt64? { known.map { $0 - min($0, given) } }

    override func read(into buffer: UnsafeMutableRawBufferPointer) -> BodyRead {
        guard let step = steps.first else { return .end(0) }
        switch step {
        case .wait:
            steps.removeFirst()
            return .wait
        case .fail:
            return .failed
        case .give(let bytes):
            let count = min(bytes.count, buffer.count)
            bytes.withUnsafeBytes { buffer.copyMemory(from: UnsafeRawBufferPointer(rebasing: $0[..<count])) }
            given += UInt64(count)
            if count == bytes.count { steps.removeFirst() } else { steps[0] = .give(Array(bytes[count...])) }
            return steps.isEmpty ? .end(count) : count == 0 ? read(into: buffer) : .bytes(count)
        }
    }
}

func pattern(_ count: Int, step: Int = 1) -> [UInt8] { (0..<count).map { UInt8(truncatingIfNeeded: $0 &* step) } }

func text(_ count: Int, _ words: String = "the same words again and again; ") -> [UInt8] {
    let unit = Array(words.utf8)
    return (0..<count).map { unit[$0 % unit.count] }
}

func noise(_ count: Int, _ seed: UInt64) -> [UInt8] {
    var random = Seeded(seed)
    var bytes: [UInt8] = []
    bytes.reserveCapacity(count + 8)
    while bytes.count < count { withUnsafeBytes(of: random.next()) { bytes.append(contentsOf: $0) } }
    return Array(bytes.prefix(count))
}

/// The vectors beside the tests.
enum Vectors {
    struct Body: Decodable {
        var kind: String
        var size: Int?
        var step: Int?
        var text: String?
        var hex: String?

        var bytes: [UInt8] {
            switch kind {
            case "pattern": pattern(size ?? 0, step: step ?? 1)
            case "text": BLIPProtocolTests.text(size ?? 0, text ?? "")
            default: Array(hex: hex ?? "")
            }
        }
    }

    struct File<Case: Decodable>: Decodable { var cases: [Case] }

    static func load<Case: Decodable>(_ name: String, as: Case.Type, path: String = #filePath) throws -> [Case] {
        let folder = URL(fileURLWithPath: path).deletingLastPathComponent().deletingLastPathComponent()
        let data = try Data(contentsOf: folder.appendingPathComponent("Vectors").appendingPathComponent(name))
        let cases = try JSONDecoder().decode(File<Case>.self, from: data).cases
        #expect(!cases.isEmpty)
        return cases
    }
}
