import BLIPProtocol
import CBLIP
import Transport

/// The bytes of a streamed message between the loop, which adds them, and the thread that reads them.
final class IncomingBody: @unchecked Sendable {
    struct State: ~Copyable {
        var bytes = Bytes(maximum: Int.max / 2)
        /// `BLIP_OK` while more may come, `BLIP_DATA_END`, or why the rest is lost.
        var status: blip_status = BLIP_OK
        /// Taken by the program and not yet acknowledged.
        var unacknowledged = 0
        var isAcknowledgementPosted = false
        /// Bytes at the front that were acknowledged before they were read.
        var acknowledgedEarly = 0
        /// A data event is on its way through a queue, or its callback runs.
        var isAnnounced = false
        /// Something came that no data event has told of.
        var hasNews = false
        /// The program wants to be told nothing now.
        var isPaused = false
        /// What the connection's memory has of it; −1: it is counted elsewhere.
        var counted = 0
        /// `BLIP_DATA_END` or the failure was handed out.
        var hasReportedEnd = false
        var waiter: Waiter?
    }

    let state = Locked(State())

    /// Adds bytes; signals who waits for them. Returns how many are held now; -1: there is no memory for them, the body
    /// has failed.
    @discardableResult
    func append(_ bytes: UnsafeRawBufferPointer, status: blip_status) -> Int {
        let (waiter, held) = state.withLock { state -> (Waiter?, Int) in
            var isHeld = true
            if state.status == BLIP_OK {
                // What cannot be held is lost, and everything behind it.
                isHeld = state.bytes.append(bytes)
                state.status = isHeld ? status : BLIP_ERROR_RESOURCES
            }
            if !bytes.isEmpty || status != BLIP_OK { state.hasNews = true }
            defer { state.waiter = nil }
            return (state.waiter, isHeld ? state.bytes.count : -1)
        }
        waiter?.signal(BLIP_OK)
        return held
    }

    /// Takes up to `buffer.count` bytes: `BLIP_OK`, `BLIP_AGAIN`, `BLIP_DATA_END` or the failure. The last bytes come with `BLIP_OK`.
    func read(into buffer: UnsafeMutableRawBufferPointer) -> (status: blip_status, count: Int, post: Bool) {
        state.withLock { state in
            let count = min(buffer.count, state.bytes.count)
            guard count > 0 else {
                if state.bytes.count > 0 { return (BLIP_OK, 0, false) }
                if state.status == BLIP_OK { return (BLIP_AGAIN, 0, false) }
                state.hasReportedEnd = true
                return (state.status, 0, false)
            }
            if let base = state.bytes.base {
                buffer.copyMemory(from: UnsafeRawBufferPointer(start: base, count: count))
            }
            state.bytes.removeFirst(count)
            return (BLIP_OK, count, Self.note(count, &state))
        }
    }

    /// Offers everything to a data callback, which says how much it takes; the rest stays in front.
    ///
    /// - Returns: true if an acknowledgement is to be posted.
    func offer(_ take: (blip_slice, blip_status) -> Int) -> Bool {
        var held = Bytes(maximum: Int.max / 2)
        let status = state.withLock { state -> blip_status? in
            guard !state.isPaused else { return nil }
            // Also if somebody has read it before: else it would be announced for ever.
            state.hasNews = false
            guard !state.hasReportedEnd, state.bytes.count > 0 || state.status != BLIP_OK else { return nil }
            swap(&held, &state.bytes)
            if state.status != BLIP_OK { state.hasReportedEnd = true }
            return state.status
        }
        guard let status else { return false }
        // More than there is (as a signed number maybe negative) means all.
        let said = take(blip_slice(held.bytes), status)
        let consumed = said < 0 ? held.count : min(said, held.count)
        held.removeFirst(consumed)
        return state.withLock { state in
            // What came meanwhile goes behind what was left.
            if !held.append(state.bytes.bytes) { state.status = BLIP_ERROR_RESOURCES }
            swap(&held, &state.bytes)
            if consumed == 0 {
                return !state.isPaused && state.bytes.count >= Self.patience && Self.acknowledgeHeld(&state)
            }
            return Self.note(consumed, &state)
        }
    }

    /// A reader that leaves so many bytes wants more than the flow control would let come.
    static let patience = 64 << 10

    /// Lets what is held count as consumed; true if the caller must post an acknowledgement.
    func acknowledgeHeld() -> Bool { state.withLock { Self.acknowledgeHeld(&$0) } }

    private static func acknowledgeHeld(_ state: inout State) -> Bool {
        state.unacknowledged += state.bytes.count - state.acknowledgedEarly
        state.acknowledgedEarly = state.bytes.count
        guard !state.isAcknowledgementPosted, state.unacknowledged > 0 else { return false }
        state.isAcknowledgementPosted = true
        return true
    }

    /// Throws everything away; it counts as consumed.
    func drop() {
        state.withLock { state in
            state.unacknowledged += state.bytes.count - state.acknowledgedEarly
            state.acknowledgedEarly = 0
            state.bytes.removeAll(keepingCapacity: 0)
        }
    }

    /// What comes can go straight to a data callback: nothing is held before it.
    var passesThrough: Bool { state.withLock { $0.bytes.count == 0 && !$0.isPaused } }

    var isPaused: Bool { state.withLock { $0.isPaused } }

    func setPaused(_ isPaused: Bool) { state.withLock { $0.isPaused = isPaused } }

    /// Counts consumed bytes; true if the caller must post an acknowledgement to the loop.
    static func note(_ count: Int, _ state: inout State) -> Bool {
        let early = min(count, state.acknowledgedEarly)
        state.acknowledgedEarly -= early
        state.unacknowledged += count - early
        // The peer waits for at least 50,000 bytes before it minds.
        guard !state.isAcknowledgementPosted, state.unacknowledged >= 16_384 || state.bytes.count == 0 else {
            return false
        }
        state.isAcknowledgementPosted = true
        return true
    }

    /// How much more is held than at the last call. The loop's.
    func recount() -> Int {
        state.withLock { state in
            guard state.counted >= 0 else { return 0 }
            defer { state.counted = state.bytes.count }
            return state.bytes.count - state.counted
        }
    }

    /// From now on it is counted elsewhere: what was counted here, and what is held.
    func endCounting() -> (counted: Int, held: Int) {
        state.withLock { state in
            defer { state.counted = -1 }
            return (max(0, state.counted), state.bytes.count)
        }
    }

    /// What is to be acknowledged now.
    func takeUnacknowledged() -> Int {
        state.withLock { state in
            state.isAcknowledgementPosted = false
            defer { state.unacknowledged = 0 }
            return state.unacknowledged
        }
    }

    /// Registers a waiter unless there is something to read.
    func wait() -> Waiter? {
        state.withLock { state in
            guard state.bytes.count == 0, state.status == BLIP_OK else { return nil }
            let waiter = state.waiter ?? Waiter()
            state.waiter = waiter
            return waiter
        }
    }

    /// True if a data event should go into a queue now: there is something to tell and none is on its way.
    func shouldAnnounce() -> Bool {
        state.withLock { state in
            guard !state.isAnnounced, state.hasNews, !state.isPaused else { return false }
            state.isAnnounced = true
            return true
        }
    }

    /// The program has got a data event: the next thing that comes makes a new one.
    func announcementDidEnd(keepingNews: Bool = false) {
        state.withLock { state in
            state.isAnnounced = false
            if !keepingNews { state.hasNews = false }
        }
    }

    /// Whether more may come, the end is here, or the rest is lost.
    var status: blip_status { state.withLock { $0.status } }

    /// What is held, unread. Valid while nothing is read or added.
    var rest: blip_slice { state.withLock { blip_slice($0.bytes.bytes) } }
}
