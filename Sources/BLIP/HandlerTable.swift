import CBLIP

/// Handlers by profile. Shared between a listener and its connections until one of them changes it.
final class HandlerTable: @unchecked Sendable {
    private struct Entry {
        let hash: UInt64
        let profile: Text
        let handler: RequestHandler
    }

    /// Buckets of a power of two; empty while there are no handlers.
    private var entries: [Entry?] = []
    private var count = 0
    var fallback: RequestHandler?

    init() {}

    private init(copying other: HandlerTable) {
        entries = other.entries
        count = other.count
        fallback = other.fallback
    }

    func copy() -> HandlerTable { HandlerTable(copying: self) }

    /// The handler for a profile, else the default one.
    func handler(for profile: UnsafeRawBufferPointer?) -> RequestHandler? {
        guard count > 0, let profile, let index = index(of: profile, Self.hash(profile)) else { return fallback }
        return entries[index]?.handler ?? fallback
    }

    func set(_ profile: UnsafeRawBufferPointer, _ handler: RequestHandler?) {
        let hash = Self.hash(profile)
        if let index = index(of: profile, hash), let old = entries[index] {
            guard let handler else { return remove(old) }
            entries[index] = Entry(hash: hash, profile: old.profile, handler: handler)
        } else if let handler {
            insert(Entry(hash: hash, profile: Text(profile), handler: handler))
        }
    }

    private func insert(_ entry: Entry) {
        if (count + 1) * 2 > entries.count { resize(max(8, entries.count * 2)) }
        var index = Int(truncatingIfNeeded: entry.hash) & (entries.count - 1)
        while entries[index] != nil { index = (index + 1) & (entries.count - 1) }
        entries[index] = entry
        count += 1
    }

    private func resize(_ size: Int) {
        let old = entries
        entries = Array(repeating: nil, count: size)
        count = 0
        for case let entry? in old { insert(entry) }
    }

    private func remove(_ entry: Entry) {
        let rest = entries.compactMap { $0 }.filter { $0.profile !== entry.profile }
        entries = Array(repeating: nil, count: entries.count)
        count = 0
        for other in rest { insert(other) }
    }

    private func index(of profile: UnsafeRawBufferPointer, _ hash: UInt64) -> Int? {
        guard !entries.isEmpty else { return nil }
        var index = Int(truncatingIfNeeded: hash) & (entries.count - 1)
        while let entry = entries[index] {
            if entry.hash == hash, let bytes = entry.profile.slice.bytes, bytes.equals(profile) { return index }
            index = (index + 1) & (entries.count - 1)
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
