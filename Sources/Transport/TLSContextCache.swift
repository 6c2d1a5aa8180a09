/// Contexts of clients, kept for connections with the same options: so authorities are read once, and sessions resumed.
enum TLSContextCache {
    struct Key: Hashable {
        var caFile: FileStamp?
        var certificate: FileStamp?
        var key: FileStamp?
        var crl: FileStamp?
        var verify: Bool
        var minimum: TLSVersion
        var maximum: TLSVersion
        var options: TLSOptions
    }

    private static let maximum = 16
    /// The one used last is at the end.
    private static let entries = Locked<[(key: Key, context: TLSContext)]>([])

    static func context(
        for key: Key, make: () throws(TransportError) -> TLSContext
    ) throws(TransportError) -> TLSContext {
        let known = entries.withLock { entries -> TLSContext? in
            guard let index = entries.firstIndex(where: { $0.key == key }) else { return nil }
            let entry = entries.remove(at: index)
            entries.append(entry)
            return entry.context
        }
        if let known { return known }
        let made = try make()
        let old = entries.withLock { entries -> TLSContext? in
            entries.append((key, made))
            return entries.count > maximum ? entries.removeFirst().context : nil
        }
        _ = consume old
        return made
    }
}
