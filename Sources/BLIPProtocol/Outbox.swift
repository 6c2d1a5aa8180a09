/// The queue of messages that have frames to send: a doubly linked list through the messages themselves.
///
/// The rule (BLIP §"Sending Messages"): a normal message goes to the end. An urgent one goes behind the last urgent one
/// with one normal message in between, without an urgent one behind the first message; but while it is new, never
/// before a message that is new itself, because numbers are given in the order of first frames. Paused and waiting
/// messages are not in it. Holds a reference to each message.
struct Outbox: ~Copyable {
    private(set) var first: Unmanaged<Message>?
    private var last: Unmanaged<Message>?
    private var lastUrgent: Unmanaged<Message>?
    private var lastUnstarted: Unmanaged<Message>?
    private(set) var count = 0

    init() {}

    deinit {
        var next = first
        while let reference = next {
            next = Self.state(reference).pointee.next
            Self.state(reference).pointee.next = nil
            Self.state(reference).pointee.previous = nil
            reference.release()
        }
    }

    @inline(__always)
    static func state(_ reference: Unmanaged<Message>) -> UnsafeMutablePointer<MessageState> {
        reference._withUnsafeGuaranteedRef { $0.state }
    }

    @inline(__always)
    private static func same(_ a: Unmanaged<Message>?, _ b: Unmanaged<Message>?) -> Bool {
        a?.toOpaque() == b?.toOpaque()
    }

    /// True if the first message is urgent.
    @inline(__always)
    var isFirstUrgent: Bool {
        guard let first else { return false }
        return Self.state(first).pointee.flags.contains(.urgent)
    }

    /// Puts `message` where the rule wants it. New is what has not been started.
    @inline(__always)
    mutating func insert(_ message: Message) {
        if count > 1 && message.state.pointee.flags.contains(.urgent) {
            insertUrgent(message)
        } else {
            append(message)
        }
    }

    /// Puts `message` at the end.
    @inline(__always)
    mutating func append(_ message: Message) {
        let reference = Unmanaged.passRetained(message)
        let s = message.state
        s.pointee.place = .queued
        s.pointee.previous = last
        s.pointee.next = nil
        if let last { Self.state(last).pointee.next = reference } else { first = reference }
        last = reference
        if s.pointee.flags.contains(.urgent) { lastUrgent = reference }
        if !s.pointee.isStarted { lastUnstarted = reference }
        count &+= 1
    }

    @inline(never)
    private mutating func insertUrgent(_ message: Message) {
        guard var anchor = first else { return append(message) }
        if let lastUrgent { anchor = Self.state(lastUrgent).pointee.next ?? lastUrgent }
        let isNew = !message.state.pointee.isStarted
        if isNew, let lastUnstarted {
            // The later one of the two counts. Only messages under way lie behind the last new one: a short walk.
            var next: Unmanaged<Message>? = lastUnstarted
            while let here = next, !Self.same(here, anchor) { next = Self.state(here).pointee.next }
            if next == nil { anchor = lastUnstarted }
        }
        let after = Self.state(anchor).pointee.next
        guard let after else { return append(message) }
        let reference = Unmanaged.passRetained(message)
        let s = message.state
        s.pointee.place = .queued
        s.pointee.previous = anchor
        s.pointee.next = after
        Self.state(anchor).pointee.next = reference
        Self.state(after).pointee.previous = reference
        lastUrgent = reference
        if isNew { lastUnstarted = reference }
        count &+= 1
    }

    /// Takes the first message out.
    @inline(__always)
    mutating func popFirst() -> Message? {
        popFirstReference()?.takeRetainedValue()
    }

    /// Takes the first message out and hands the queue's reference over.
    @inline(__always)
    mutating func popFirstReference() -> Unmanaged<Message>? {
        guard let reference = first else { return nil }
        let s = Self.state(reference)
        let next = s.pointee.next
        first = next
        if let next {
            Self.state(next).pointee.previous = nil
            if Self.same(lastUrgent, reference) { lastUrgent = nil }
            if Self.same(lastUnstarted, reference) { lastUnstarted = nil }
        } else {
            last = nil
            lastUrgent = nil
            lastUnstarted = nil
        }
        s.pointee.next = nil
        s.pointee.place = .none
        count &-= 1
        return reference
    }

    /// Takes a message that is in the queue out of it.
    mutating func remove(_ message: Message) {
        let s = message.state
        let reference = Unmanaged.passUnretained(message)
        let next = s.pointee.next
        let previous = s.pointee.previous
        if let next { Self.state(next).pointee.previous = previous } else { last = previous }
        if let previous { Self.state(previous).pointee.next = next } else { first = next }
        if Self.same(lastUrgent, reference) {
            lastUrgent = Self.search(back: previous) { $0.pointee.flags.contains(.urgent) }
        }
        if Self.same(lastUnstarted, reference) {
            lastUnstarted = Self.search(back: previous) { !$0.pointee.isStarted }
        }
        s.pointee.next = nil
        s.pointee.previous = nil
        s.pointee.place = .none
        count -= 1
        reference.release()
    }

    private static func search(
        back from: Unmanaged<Message>?, _ matches: (UnsafeMutablePointer<MessageState>) -> Bool
    ) -> Unmanaged<Message>? {
        var here = from
        while let reference = here, !matches(state(reference)) { here = state(reference).pointee.previous }
        return here
    }

    /// All messages, in order.
    func all() -> [Message] {
        var found: [Message] = []
        found.reserveCapacity(count)
        var next = first
        while let reference = next {
            found.append(reference.takeUnretainedValue())
            next = Self.state(reference).pointee.next
        }
        return found
    }
}
