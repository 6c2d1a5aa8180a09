/// One direction of a simulated network connection: bytes go in at one end and come out at the other, later, in other
/// pieces, and maybe not all of them.
final class Link {
    /// What happens at one byte of the stream.
    enum Fault: Equatable {
        case none
        /// The receiver sees the end of the stream; what is written from then on vanishes.
        case truncated(at: Int)
        /// Both ends see a reset.
        case reset(at: Int)
        /// Nothing passes for a while, or ever.
        case stalled(at: Int, until: UInt64)
    }

    enum Read: Equatable {
        case nothing
        case bytes([UInt8])
        case end
        case reset
    }

    private var random: Seeded
    private let fault: Fault
    /// How much may lie in the link; the writer waits when it is full.
    private let capacity: Int
    private let delay: UInt64
    private let largestPiece: Int
    /// A place at which the stream is always cut.
    private let cut: Int?

    private var held: [UInt8] = []
    private var pieces: [(end: Int, due: UInt64)] = []
    private var isFinished = false
    private(set) var isReset = false
    private(set) var written = 0
    private(set) var delivered = 0

    init(seed: UInt64, fault: Fault = .none, capacity: Int, delay: UInt64, largestPiece: Int, cut: Int? = nil) {
        random = Seeded(seed)
        self.fault = fault
        self.capacity = capacity
        self.delay = delay
        self.largestPiece = largestPiece
        self.cut = cut
    }

    /// How many of the bytes were taken: maybe none.
    func write(_ bytes: ArraySlice<UInt8>, now: UInt64) -> Int {
        guard !isReset, !isFinished else { return bytes.count }
        let taken = min(bytes.count, max(0, capacity - held.count))
        guard taken > 0 else { return 0 }
        held += bytes.prefix(taken)
        written += taken
        pieces.append((written, now + (delay == 0 ? 0 : random.next() % delay)))
        return taken
    }

    func finish() { isFinished = true }

    func reset() {
        isReset = true
        held = []
    }

    func read(now: UInt64) -> Read {
        if isReset { return .reset }
        var most = largestPiece == 1 ? 1 : 1 + random.below(largestPiece)
        switch fault {
        case .none: break
        case .truncated(let at):
            most = min(most, at - delivered)
            if most <= 0 { return .end }
        case .reset(let at):
            most = min(most, at - delivered)
            if most <= 0 {
                reset()
                return .reset
            }
        case .stalled(let at, let until):
            if now < until { most = min(most, at - delivered) }
            if most <= 0 { return .nothing }
        }
        if let cut, delivered < cut { most = min(most, cut - delivered) }
        // What was written later does not overtake what is still delayed.
        var due = delivered
        while let piece = pieces.first, piece.due <= now {
            due = piece.end
            if piece.end - delivered > most { break }
            pieces.removeFirst()
        }
        let count = min(most, due - delivered)
        guard count > 0 else { return isFinished && held.isEmpty ? .end : .nothing }
        let bytes = Array(held.prefix(count))
        held.removeFirst(count)
        delivered += count
        return .bytes(bytes)
    }
}
