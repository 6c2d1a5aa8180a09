import Glibc

/// Bytes in one piece, taken from the front and added at the back; no memory while empty and after `removeAll`.
struct ByteQueue: ~Copyable {
    private var base: UnsafeMutableRawPointer?
    private var start = 0
    private(set) var count = 0
    private var capacity = 0

    init() {}

    deinit { free(base) }

    var isEmpty: Bool { count == 0 }
    var ownsMemory: Bool { base != nil }

    var bytes: UnsafeMutableRawBufferPointer {
        UnsafeMutableRawBufferPointer(start: base.map { $0 + start }, count: count)
    }

    /// The free bytes behind the content.
    var room: UnsafeMutableRawBufferPointer {
        UnsafeMutableRawBufferPointer(
            start: base.map { $0 + start + count }, count: capacity - start - count)
    }

    /// Makes room for at least so many bytes behind the content. False: there is no memory.
    mutating func reserve(_ extra: Int) -> Bool {
        if capacity - start - count >= extra { return true }
        let (needed, overflow) = count.addingReportingOverflow(extra)
        if overflow { return false }
        if start > 0, needed <= capacity, start >= count || start >= capacity / 2, let base {
            memmove(base, base + start, count)
            start = 0
            return true
        }
        guard let fresh = malloc(needed) else { return false }
        if count > 0, let base { memcpy(fresh, base + start, count) }
        free(base)
        base = fresh
        start = 0
        capacity = needed
        return true
    }

    /// Counts bytes that were written into `room`.
    mutating func commit(_ added: Int) {
        count += min(max(added, 0), capacity - start - count)
    }

    mutating func append(_ source: UnsafeRawPointer, _ size: Int) -> Bool {
        guard size > 0 else { return true }
        guard reserve(size) else { return false }
        if let target = room.baseAddress { memcpy(target, source, size) }
        count += size
        return true
    }

    mutating func removeFirst(_ removed: Int) {
        let removed = min(max(removed, 0), count)
        start += removed
        count -= removed
        if count == 0 { start = 0 }
    }

    /// Forgets the content, keeping the memory.
    mutating func clear() {
        start = 0
        count = 0
    }

    mutating func removeAll() {
        free(base)
        base = nil
        start = 0
        count = 0
        capacity = 0
    }
}
