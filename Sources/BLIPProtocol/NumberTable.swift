/// Messages by number: an open-addressing table of a power of two, at most half full, with linear probing.
///
/// Numbers are nearly sequential, so they are their own hash. Holds a reference to each message. Nothing is allocated
/// before the first insertion.
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
    @inline(__always)
    mutating func insert(_ key: UInt64, _ message: Message) {
        if slots == nil || (count &+ 1) &* 2 > mask &+ 1 { grow() }
        guard key != 0, let slots else { return }
        let reference = Unmanaged.passRetained(message)
        var index = home(key)
        while slots[index].key != 0 {
            if slots[index].key == key {
                slots[index].message?.release()
                slots[index].message = reference
                return
            }
            index = (index &+ 1) & mask
        }
        slots[index] = Slot(key: key, message: reference)
        count &+= 1
    }

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
            var place = home(old[index].key)
            while new[place].key != 0 { place = (place &+ 1) & mask }
            new[place] = old[index]
        }
        old.deallocate()
    }

    /// Takes the message in a slot that `find` gave out of the table.
    @inline(__always) @discardableResult
    mutating func remove(at index: Int) -> Message? {
        guard let slots else { return nil }
        let removed = slots[index].message
        var hole = index
        var next = index
        while true {
            next = (next &+ 1) & mask
            let key = slots[next].key
            if key == 0 { break }
            // The entry may fill the hole unless its home lies behind the hole, on the way to where it is.
            if (next &- home(key)) & mask >= (next &- hole) & mask {
                slots[hole] = slots[next]
                hole = next
            }
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
