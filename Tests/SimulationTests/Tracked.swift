import BLIPProtocol

/// Counts the messages of a run that are alive.
final class Census {
    var alive = 0
}

/// A message that is counted.
final class Tracked: Message, @unchecked Sendable {
    private let census: Census
    weak var record: Record?
    /// What of a streamed body was read.
    var collected: [UInt8] = []

    init(_ census: Census) {
        self.census = census
        census.alive += 1
        super.init()
    }

    deinit { census.alive -= 1 }

    func get(_ key: StaticString) -> String? {
        property(UnsafeRawBufferPointer(start: key.utf8Start, count: key.utf8CodeUnitCount))
            .map { String(decoding: $0, as: UTF8.self) }
    }

    func set(_ key: StaticString, _ value: String) {
        var value = value
        value.withUTF8 {
            _ = setProperty(
                UnsafeRawBufferPointer(start: key.utf8Start, count: key.utf8CodeUnitCount), UnsafeRawBufferPointer($0))
        }
    }

    func fill(_ bytes: ArraySlice<UInt8>) { bytes.withUnsafeBytes { _ = body.append($0) } }
}

/// A request that a side's program has sent, and what became of it.
final class Record {
    enum Outcome: Equatable { case answered, sent, cancelled, failed }

    let id: Int
    let message: Tracked
    let body: [UInt8]
    var outcome: Outcome?
    var isCancelled = false
    var wasSeenByPeer = false

    init(id: Int, _ message: Tracked, _ body: [UInt8]) {
        self.id = id
        self.message = message
        self.body = body
    }

    var wantsReply: Bool { !message.flags.contains(.noReply) }
}

/// A body that comes in pieces, with pauses.
final class Trickle: BodySource {
    private var rest: ArraySlice<UInt8>
    private let piece: Int
    var patience: Int

    init(_ bytes: ArraySlice<UInt8>, piece: Int, patience: Int) {
        rest = bytes
        self.piece = max(1, piece)
        self.patience = patience
    }

    override func read(into buffer: UnsafeMutableRawBufferPointer) -> BodyRead {
        if patience <= 0 { return .wait }
        patience -= 1
        let count = min(piece, buffer.count, rest.count)
        buffer.copyBytes(from: rest.prefix(count))
        rest = rest.dropFirst(count)
        return rest.isEmpty ? .end(count) : .bytes(count)
    }
}
