import BLIPProtocol

/// Two sides, the links between them, and a clock that nobody but the run moves.
final class World {
    struct Shape {
        var version = ProtocolVersion.v3
        var frame = 16384
        var level: Int32 = 6
        var requests = 12
        var largestBody = 30_000
        /// Nothing is cancelled, so that everything has to be answered.
        var isTame = false
        var faults: [Link.Fault] = [.none, .none]
        var capacity = 65_536
        var delay: UInt64 = 0
        var largestPiece = 70_000
        var cuts: [Int?] = [nil, nil]
        /// The step at which a side closes although there is traffic.
        var closesAt: UInt64?

        init() {}

        /// Any shape, by a seed.
        init(random: inout Seeded) {
            version = [.v2, .v3, .v3, .v3][random.below(4)]
            frame = [64, 200, 1000, 4096, 16384, 16384][random.below(6)]
            level = [0, 1, 6, 9][random.below(4)]
            requests = 1 + random.below(16)
            largestBody = min([100, 5000, 60_000, 300_000][random.below(4)], frame * 300)
            isTame = random.oneIn(3)
            capacity = [1, 100, 4096, 65_536, 1 << 20][random.below(5)]
            delay = [0, 0, 5, 60][random.below(4)]
            largestPiece = [1, 3, 100, 5000, 1 << 20][random.below(5)]
            // Single bytes take a turn each.
            if min(capacity, largestPiece) < 10 {
                largestBody = min(largestBody, 300)
                delay = min(delay, 5)
            }
            if min(capacity, largestPiece) < 200 { largestBody = min(largestBody, 5000) }
            let at = random.size(min(200_000, requests * largestBody + 500))
            let side = random.below(2)
            switch random.below(6) {
            case 0: faults[side] = .truncated(at: at)
            case 1: faults[side] = .reset(at: at)
            case 2: faults[side] = .stalled(at: at, until: UInt64(random.below(2000)))
            case 3: faults[side] = .stalled(at: at, until: .max)
            default: break
            }
            if random.oneIn(8) { closesAt = UInt64(random.below(200)) }
        }

        var hasFault: Bool { closesAt != nil || faults.contains { $0 != .none } }
    }

    let census = Census()
    private let shape: Shape
    private var links: [Link] = []
    private var sides: [Side] = []
    private var random: Seeded

    init(_ shape: Shape, seed: UInt64) {
        self.shape = shape
        random = Seeded(seed)
        links = (0..<2).map {
            Link(
                seed: seed &+ UInt64($0) &+ 11, fault: shape.faults[$0], capacity: shape.capacity, delay: shape.delay,
                largestPiece: shape.largestPiece, cut: shape.cuts[$0])
        }
        sides = ["client", "server"].enumerated().map {
            Side($1, self, shape, seed: seed &* 2 &+ UInt64($0), isClient: $0 == 0)
        }
    }

    /// How many bytes came through in each direction.
    var delivered: [Int] { links.map(\.delivered) }

    func record(_ id: Int, from side: Side) -> Record? {
        let sender = sides[0] === side ? sides[1] : sides[0]
        return sender.records.indices.contains(id) ? sender.records[id] : nil
    }

    private func index(_ side: Side) -> Int { side === sides[0] ? 0 : 1 }

    func finishOutput(of side: Side) { links[index(side)].finish() }

    /// A side has closed its socket.
    func dropped(by side: Side) { links[index(side)].finish() }

    /// Goes on until both have ended. Throws what does not hold.
    func run() throws {
        var now: UInt64 = 0
        while sides.contains(where: { $0.phase != .closed }) {
            now += 1
            if now > 400_000 { throw Side.Complaint(description: "it never ends") }
            for offset in 0..<2 {
                let one = (offset + Int(now % 2)) % 2
                try sides[one].act(now)
                try sides[one].write(to: links[one], now)
                try sides[1 - one].read(from: links[one], now)
            }
            if shape.closesAt == now { try sides[random.below(2)].close(now, links[0]) }
            if sides.allSatisfy({ $0.isDone && $0.isIdle }) { try sides[random.below(2)].close(now, links[0]) }
        }
        for side in sides {
            for record in side.records {
                guard let outcome = record.outcome else {
                    throw Side.Complaint(description: "\(side.name): request \(record.id) never completes")
                }
                if !shape.hasFault, shape.isTame, outcome != (record.wantsReply ? .answered : .sent) {
                    throw Side.Complaint(description: "\(side.name): request \(record.id) ends as \(outcome)")
                }
                if outcome == .answered, !record.wasSeenByPeer {
                    throw Side.Complaint(description: "\(side.name): request \(record.id) is answered by nobody")
                }
            }
            if side.isBroken { throw Side.Complaint(description: "\(side.name): a body source is said to fail") }
        }
    }
}
