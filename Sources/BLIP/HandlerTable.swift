import Synchronization

/// Handlers by profile.
final class HandlerTable: @unchecked Sendable {
    /// Where a profile's handler is; nothing in it is reference counted, so that a look-up costs no more than it must.
    private struct Bucket {
        var hash: UInt64 = 0
        var profile = UnsafeRawBufferPointer(start: nil, count: 0)
        /// Index in `entries`; −1: free.
        var entry = -1
    }

    private struct Entry {
        let profile: Text
        var handler: RequestHandler
    }

    private var buckets: ContiguousArray<Bucket> = []
    private var entries: ContiguousArray<Entry> = []
    /// The bucket that served last: most traffic is of few profiles. Several loops may look things up at once.
    private let recent = Atomic<Int>(0)
    var fallback: RequestHandler?

    init() {}

    private init(copying other: HandlerTable) {
        buckets = other.buckets
        entries = other.entries
        fallback = other.fallback
    }

    func copy() -> HandlerTable { HandlerTable(copying: self) }

    /// The handler for a profile, else the default one.
    func handler(for profile: UnsafeRawBufferPointer?) -> RequestHandler? {
        guard !entries.isEmpty, let profile, let index = index(of: profile) else { return fallback }
        return entries[index].handler
    }

    func contains(_ profile: UnsafeRawBufferPointer) -> Bool { index(of: profile) != nil }

    /// Sets, replaces or (nil) removes a profile's handler; false if there was none to be removed.
    func set(_ profile: UnsafeRawBufferPointer, _ handler: RequestHandler?) -> Bool {
        if let index = index(of: profile) {
            if let handler { entries[index].handler = handler } else { entries.remove(at: index) }
        } else if let handler {
            entries.append(Entry(profile: Text(profile), handler: handler))
        } else {
            return false
        }
        rebuild()
        return true
    }

    /// Setting handlers is rare: the buckets are made anew each time.
    private func rebuild() {
        var size = 8
        while size < entries.count * 2 { size *= 2 }
        recent.store(0, ordering: .relaxed)
        buckets = ContiguousArray(repeating: Bucket(), count: size)
        for (entry, value) in entries.enumerated() {
            guard let profile = value.profile.slice.bytes else { continue }
            let hash = Self.hash(profile)
            var index = Int(truncatingIfNeeded: hash) & (size - 1)
            while buckets[index].entry >= 0 { index = (index + 1) & (size - 1) }
            buckets[index] = Bucket(hash: hash, profile: profile, entry: entry)
        }
    }

    private func index(of profile: UnsafeRawBufferPointer) -> Int? {
        guard !buckets.isEmpty else { return nil }
        let last = buckets[recent.load(ordering: .relaxed)]
        if last.entry >= 0, last.profile.equals(profile) { return last.entry }
        let hash = Self.hash(profile)
        var index = Int(truncatingIfNeeded: hash) & (buckets.count - 1)
        while buckets[index].entry >= 0 {
            if buckets[index].hash == hash, buckets[index].profile.equals(profile) {
                recent.store(index, ordering: .relaxed)
                return buckets[index].entry
            }
            index = (index + 1) & (buckets.count - 1)
        }
        return nil
    }

    /// FNV-1a. Only the program adds entries, so that a peer cannot make chains grow.
    private static func hash(_ bytes: UnsafeRawBufferPointer) -> UInt64 {
        var hash: UInt64 = 0xcbf2_9ce4_8422_2325
        for byte in bytes { hash = (hash ^ UInt64(byte)) &* 0x100_0000_01b3 }
        return hash ^ (hash >> 32)
    }
}
