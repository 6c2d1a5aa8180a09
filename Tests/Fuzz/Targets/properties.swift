@testable import BLIPProtocol

/// Numbers of variable length and properties, compared with plain implementations of the same rules.
@c(LLVMFuzzerTestOneInput)
public func fuzz(_ data: UnsafePointer<UInt8>?, _ size: Int) -> Int32 {
    var input = Input(data, size)
    switch input.byte() % 4 {
    case 0: varints(input.rest())
    case 1: encoded(input.rest())
    case 2: edits(&input)
    default: memory(&input)
    }
    return 0
}

// MARK: Varints

/// Reads one as the specification says, in arithmetic that cannot overflow.
private func plainVarint(_ bytes: ArraySlice<UInt8>) -> (value: UInt64, size: Int)? {
    var value: UInt64 = 0
    for (index, byte) in bytes.prefix(10).enumerated() {
        let bits = UInt64(byte & 0x7F)
        guard index < 9 || bits <= 1 else { return nil }
        value |= bits << UInt64(7 * index)
        if byte < 0x80 { return (value, index + 1) }
    }
    return nil
}

private func varints(_ bytes: [UInt8]) {
    withExact(bytes) { memory in
        guard let base = memory.baseAddress else { return }
        var at = UnsafeRawPointer(base)
        let end = at + memory.count
        while at < end {
            let start = at
            let offset = at - UnsafeRawPointer(base)
            let read = Varint.read(&at, end)
            let plain = plainVarint(bytes[offset...])
            check(read == plain?.value, "varint at \(offset) is \(String(describing: read))")
            guard let read, let plain else {
                check(at == start, "moved by a bad varint")
                at += 1
                continue
            }
            check(at - start == plain.size, "a varint of \(plain.size) bytes took \(at - start)")
            let size = Varint.size(read)
            check(size <= plain.size, "\(read) is said to take \(size) bytes")
            withExact([UInt8](repeating: 0, count: size)) { target in
                guard let to = target.baseAddress else { return }
                check(Varint.write(read, to: to) == size, "\(read) was written in another size")
                check(plainVarint(Array(target)[...])?.value == read, "\(read) was written wrongly")
            }
        }
    }
}

// MARK: Encoded properties

private func texts(_ encoded: [UInt8]) -> [[UInt8]] {
    encoded.dropLast().split(separator: 0, omittingEmptySubsequences: false).map(Array.init)
}

private func encoded(_ bytes: [UInt8]) {
    withExact(bytes) { memory in
        let raw = UnsafeRawBufferPointer(memory)
        let isText = String(validating: bytes, as: UTF8.self) != nil
        let isPaired = bytes.isEmpty || bytes.last == 0 && bytes.count(where: { $0 == 0 }) % 2 == 0
        check(PropertyRules.isUTF8(raw) == isText, "UTF-8 is judged wrongly")
        check(PropertyRules.areValid(raw) == (isPaired && isText), "properties are judged wrongly")

        // The scanner has to cope with everything.
        var scanner = PropertyScanner(raw)
        var pairs: [([UInt8], [UInt8])] = []
        while let pair = scanner.next() { pairs.append((Array(pair.key), Array(pair.value))) }
        guard isPaired, isText, !bytes.isEmpty else { return }
        let plain = texts(bytes)
        check(pairs.count * 2 == plain.count, "\(pairs.count) pairs of \(plain.count) texts")
        for (index, pair) in pairs.enumerated() {
            check(pair.0 == plain[2 * index] && pair.1 == plain[2 * index + 1], "pair \(index)")
        }
        for version in [ProtocolVersion.v1, .v2, .v3] { abbreviations(raw, plain, version) }
    }
}

private func abbreviations(_ raw: UnsafeRawBufferPointer, _ plain: [[UInt8]], _ version: ProtocolVersion) {
    var short = Bytes()
    check(PropertyRules.abbreviate(raw, version, into: &short), "no abbreviation")
    check(short.count <= raw.count, "abbreviations made it longer")
    check(PropertyRules.areValid(short.bytes), "abbreviations made it invalid")
    var long = Bytes()
    let hasCode = plain.contains { $0.count == 1 && $0[0] < 0x20 }
    check(PropertyRules.hasAbbreviation(raw) == hasCode, "abbreviations are seen wrongly")
    if version == .v3 {
        check(Array(short.bytes) == Array(raw), "version 3 has no abbreviations")
    } else if hasCode {
        // A literal control character reads as an abbreviation: no more than that it is bounded.
        if PropertyRules.expand(raw, version, into: &long) {
            check(long.count <= 26 * raw.count, "\(raw.count) bytes expand to \(long.count)")
            check(PropertyRules.areValid(long.bytes), "expanding made it invalid")
        }
    } else {
        check(PropertyRules.expand(short.bytes, version, into: &long), "cannot expand what was abbreviated")
        check(Array(long.bytes) == Array(raw), "expanding gives something else")
    }
}

// MARK: Properties of a message

/// A text of a small alphabet, so that keys meet.
private func text(_ input: inout Input) -> [UInt8] {
    let shape = input.byte()
    if shape < 128 { return Array("kv\(shape % 8)".utf8) }
    return input.take(Int(shape & 0x3F)).map { $0 == 0 ? 1 : $0 }
}

private func edits(_ input: inout Input) {
    let message = Message()
    var model: [([UInt8], [UInt8])] = []
    while !input.isEmpty {
        let operation = input.byte()
        let key = text(&input)
        withExact(key) { key in
            let key = UnsafeRawBufferPointer(key)
            let place = model.firstIndex { $0.0 == Array(key) }
            switch operation % 4 {
            case 0, 1:
                let value = text(&input)
                check(withExact(value) { message.setProperty(key, UnsafeRawBufferPointer($0)) }, "not set")
                if let place { model[place].1 = value } else { model.append((Array(key), value)) }
            case 2:
                check(message.removeProperty(key) == (place != nil), "removed wrongly")
                if let place { model.remove(at: place) }
            default:
                check(message.property(key).map { Array($0) } == place.map { model[$0].1 }, "found wrongly")
            }
        }
        check(message.propertyCount == model.count, "\(message.propertyCount) properties")
    }
    for (index, pair) in model.enumerated() {
        guard let found = message.property(at: index) else { finding("property \(index) is missing") }
        check(Array(found.key) == pair.0 && Array(found.value) == pair.1, "property \(index) differs")
    }
    check(message.property(at: model.count) == nil && message.property(at: -1) == nil, "a property beyond the last")
}

// MARK: Bytes

private func memory(_ input: inout Input) {
    let maximum = input.flag() ? Int.max : input.word()
    var bytes = Bytes(maximum: maximum)
    var model: [UInt8] = []
    while !input.isEmpty {
        switch input.byte() % 8 {
        case 0:
            let more = input.take(Int(input.byte()))
            let fits = more.count <= maximum - model.count
            check(withExact(more) { bytes.append(UnsafeRawBufferPointer($0)) } == fits, "append")
            if fits { model += more }
        case 1:
            let byte = input.byte()
            check(bytes.append(byte) == (model.count < maximum), "append of a byte")
            if model.count < maximum { model.append(byte) }
        case 2:
            let count = Int(Int8(bitPattern: input.byte()))
            bytes.removeFirst(count)
            model.removeFirst(max(0, min(count, model.count)))
        case 3:
            let count = Int(Int8(bitPattern: input.byte()))
            bytes.truncate(to: count)
            model.removeLast(model.count - max(0, min(count, model.count)))
        case 4:
            let at = Int(Int8(bitPattern: input.byte()))
            let size = Int(Int8(bitPattern: input.byte()))
            let new = input.take(Int(input.byte()))
            let fits =
                at >= 0 && size >= 0 && at + size <= model.count && new.count - size <= maximum - model.count
            check(withExact(new) { bytes.replace(at: at, size, with: UnsafeRawBufferPointer($0)) } == fits, "replace")
            if fits { model.replaceSubrange(at..<at + size, with: new) }
        case 5:
            let extra = input.word() - 4
            let fits = extra >= 0 && extra <= maximum - model.count
            check(bytes.reserve(extra) == fits, "reserve \(extra)")
            if fits { check(bytes.room.count >= extra, "room") }
        case 6:
            let filled = input.take(Int(input.byte()))
            let taken = min(filled.count, bytes.room.count)
            bytes.room.copyBytes(from: filled.prefix(taken))
            bytes.didAppend(filled.count)
            model += filled.prefix(taken)
        default:
            bytes.removeAll(keepingCapacity: input.word())
            model = []
        }
        check(bytes.count == model.count && bytes.count <= bytes.capacity, "\(bytes.count) bytes")
        check(bytes.count <= maximum, "above the maximum")
        check(Array(bytes.bytes) == model, "other bytes")
    }
}
