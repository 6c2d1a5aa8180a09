/// Messages by number: an open-addressing table of a power of two, at most half full, with linear probing.
///
/// Numbers are nearly sequential, so they are their own hash. Entries of neighbouring slots lie in the order of their
/// home slots ("Robin Hood"), so that a removal from a long run of sequential numbers moves nothing. Holds a reference
/// to each message. Nothing is allocated before the first insertion.
struct NumberTable: ~Copyable {
    private struct Slot {
        /// 0: empty.
        var key: UInt64
        var message: Unmanaged<Message>?
    }

    private var slots: UnsafeMutablePointer<Slot>?
    private var mask = 0
    private(set) var count = 0

    init() {}

    deinit {
        guard let slots else { return }
        for index in 0...mask { slots[index].message?.release() }
        slots.deallocate()
    }

    @inline(__always)
    private func home(_ key: UInt64) -> Int { Int(truncatingIfNeeded: key) & mask }

    /// The slot of `key`; nil if it is not in the table.
    @inline(__always)
    func find(_ key: UInt64) -> Int? {
        guard count > 0, key != 0, let slots else { return nil }
        var index = home(key)
        while true {
            let found = slots[index].key
            if found == key { return index }
            if found == 0 { return nil }
            index = (index &+ 1) & mask
        }
    }

    /// The message in a slot that `find` gave.
    @inline(__always)
    func message(at index: Int) -> Message? {
        slots?[index].message?.takeUnretainedValue()
    }

    @inline(__always)
    subscript(key: UInt64) -> Message? {
        guard let index = find(key) else { return nil }
        return message(at: index)
    }

    /// Puts `message` in, in place of the one that has this key, if any. `key` is not 0.
    mutating func insert(_ key: UInt64, _ message: Message) {
        if let index = find(key), let slots {
            slots[index].message?.release()
            slots[index].message = Unmanaged.passRetained(message)
        } else if key != 0 {
            insertNew(key, Unmanaged.passRetained(message))
        }
    }

    /// Puts a message in whose key is not in the table and not 0, and takes over the reference to it.
    @inline(__always)
    mutating func insertNew(_ key: UInt64, _ message: Unmanaged<Message>) {
        if (count &+ 1) &* 2 > capacity { grow() }
        guard let slots else { return }
        let index = home(key)
        if slots[index].key == 0 {
            slots[index] = Slot(key: key, message: message)
        } else {
            place(Slot(key: key, message: message), in: slots, from: index)
        }
        count &+= 1
    }

    @inline(never)
    private func place(_ slot: Slot, in slots: UnsafeMutablePointer<Slot>, from start: Int) {
        var slot = slot
        var index = start
        var distance = (start &- home(slot.key)) & mask
        while slots[index].key != 0 {
            let other = (index &- home(slots[index].key)) & mask
            if other < distance {
                swap(&slot, &slots[index])
                distance = other
            }
            index = (index &+ 1) & mask
            distance &+= 1
        }
        slots[index] = slot
    }

    private var capacity: Int { slots == nil ? 0 : mask &+ 1 }

    @inline(never)
    private mutating func grow() {
        let old = slots
        let oldMask = mask
        let capacity = old == nil ? 8 : (oldMask + 1) * 2
        let new = UnsafeMutablePointer<Slot>.allocate(capacity: capacity)
        new.initialize(repeating: Slot(key: 0, message: nil), count: capacity)
        slots = new
        mask = capacity - 1
        guard let old else { return }
        for index in 0...oldMask where old[index].key != 0 {
            place(old[index], in: new, from: home(old[index].key))
        }
        old.deallocate()
    }

    /// The message in a slot that `find` gave, with no reference taken.
    @inline(__always)
    func reference(at index: Int) -> Unmanaged<Message>? {
        slots?[index].message
    }

    /// Takes the message in a slot that `find` gave out of the table.
    @inline(__always) @discardableResult
    mutating func remove(at index: Int) -> Message? {
        guard let slots else { return nil }
        let removed = slots[index].message
        var hole = index
        while true {
            let next = (hole &+ 1) & mask
            let key = slots[next].key
            // What lies in its home, and all behind it, stays.
            if key == 0 || home(key) == next { break }
            slots[hole] = slots[next]
            hole = next
        }
        slots[hole] = Slot(key: 0, message: nil)
        count &-= 1
        return removed?.takeRetainedValue()
    }

    @inline(__always) @discardableResult
    mutating func remove(_ key: UInt64) -> Message? {
        guard let index = find(key) else { return nil }
        return remove(at: index)
    }

    /// All messages, by rising key.
    func all() -> [Message] {
        guard count > 0, let slots else { return [] }
        var found: [(key: UInt64, message: Message)] = []
        found.reserveCapacity(count)
        for index in 0...mask {
            if let message = slots[index].message { found.append((slots[index].key, message.takeUnretainedValue())) }
        }
        found.sort { $0.key < $1.key }
        return found.map { $0.message }
    }

    /// Empties it and frees its memory.
    mutating func removeAll() {
        guard let slots else { return }
        if count > 0 { for index in 0...mask { slots[index].message?.release() } }
        slots.deallocate()
        self.slots = nil
        mask = 0
        count = 0
    }
}
