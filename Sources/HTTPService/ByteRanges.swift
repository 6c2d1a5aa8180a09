/// The Range header (RFC 9110 §14).
enum ByteRanges: Equatable {
    /// The header does not apply: the whole file is sent.
    case whole
    /// Nothing of it is inside the file.
    case unsatisfiable
    case parts([Range<UInt64>])

    private static let maximumParts = 16

    /// Reads `header` for a file of `size` bytes. More than 16 ranges, or ranges that overlap, get the whole file: nobody
    /// needs those but to make a server work (RFC 9110 §14.2).
    static func parse(_ header: String, size: UInt64) -> ByteRanges {
        let text = header.utf8
        let unit = "bytes="
        guard text.count > unit.utf8.count, text.count <= 1024, text.prefix(unit.utf8.count).elementsEqual(unit.utf8)
        else { return .whole }
        var found: [Range<UInt64>] = []
        let specs = text.dropFirst(unit.utf8.count).split(separator: UInt8(ascii: ","), omittingEmptySubsequences: true)
        guard !specs.isEmpty, specs.count <= maximumParts else { return .whole }
        for spec in specs {
            let trimmed = trim(spec)
            guard let dash = trimmed.firstIndex(of: UInt8(ascii: "-")) else { return .whole }
            let first = trimmed[..<dash]
            let last = trimmed[trimmed.index(after: dash)...]
            if first.isEmpty {
                guard let suffix = number(last) else { return .whole }
                if suffix > 0, size > 0 { found.append((size - min(suffix, size))..<size) }
                continue
            }
            guard let start = number(first) else { return .whole }
            var end = size
            if !last.isEmpty {
                guard let final = number(last), final >= start else { return .whole }
                end = min(size, final + 1)
            }
            if start < end { found.append(start..<end) }
        }
        guard !found.isEmpty else { return .unsatisfiable }
        let sorted = found.sorted { $0.lowerBound < $1.lowerBound }
        for (one, next) in zip(sorted, sorted.dropFirst()) where next.lowerBound < one.upperBound { return .whole }
        return .parts(found)
    }

    private static func trim(_ text: Substring.UTF8View) -> Substring.UTF8View {
        var text = text
        while let first = text.first, first == 0x20 || first == 0x09 { text.removeFirst() }
        while let last = text.last, last == 0x20 || last == 0x09 { text.removeLast() }
        return text
    }

    private static func number(_ text: Substring.UTF8View) -> UInt64? {
        guard !text.isEmpty, text.count <= 18, text.allSatisfy({ (0x30...0x39).contains($0) }) else { return nil }
        return text.reduce(0) { $0 * 10 + UInt64($1 & 0x0F) }
    }
}
