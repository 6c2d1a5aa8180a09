#if canImport(Glibc)
    import Glibc
#elseif canImport(Musl)
    import Musl
#endif

/// Writes blocks of deflate (RFC 1951 §3.2.3), each in the form that takes the fewest bits.
struct BlockCoder {
    /// Counted by who finds the symbols; the coder sets them back to 0.
    let literalCounts: UnsafeMutablePointer<UInt32>
    let distanceCounts: UnsafeMutablePointer<UInt32>

    private let literalCodes: UnsafeMutablePointer<PrefixCode.Entry>
    private let distanceCodes: UnsafeMutablePointer<PrefixCode.Entry>
    private let fixedLiteralCodes: UnsafeMutablePointer<PrefixCode.Entry>
    private let fixedDistanceCodes: UnsafeMutablePointer<PrefixCode.Entry>
    private let lengthCodes: UnsafeMutablePointer<PrefixCode.Entry>
    private let lengthCounts: UnsafeMutablePointer<UInt32>
    /// The code lengths of literals and, right behind those in use, distances.
    private let lengths: UnsafeMutablePointer<UInt8>
    private let lengthLengths: UnsafeMutablePointer<UInt8>
    /// The description of `lengths`: codes 0 to 18 and above them the extra bits.
    private let description: UnsafeMutablePointer<UInt16>
    private let code: PrefixCode

    private static let literalRoom = 288
    private static let distanceRoom = 32
    private static let lengthRoom = 32
    /// The size in bytes of the memory that `init` wants.
    static let size =
        4 * (3 * literalRoom + 3 * distanceRoom + 2 * lengthRoom)
        + (literalRoom + distanceRoom) + lengthRoom + 2 * (literalRoom + distanceRoom) + PrefixCode.scratchSize
    /// In what order the lengths of the code for lengths are written.
    private static var order: UnsafePointer<UInt8> {
        let order: StaticString =
            "\u{10}\u{11}\u{12}\u{0}\u{8}\u{7}\u{9}\u{6}\u{A}\u{5}\u{B}\u{4}\u{C}\u{3}\u{D}\u{2}\u{E}\u{1}\u{F}"
        return order.utf8Start
    }
    /// Blocks that take fewer bits than this with the fixed codes do not become smaller with their own.
    private static let worthOwnCodes: UInt64 = 320

    /// - Parameter memory: all 0, aligned to 4 bytes.
    init(_ memory: UnsafeMutableRawPointer) {
        var at = memory
        func take<T>(_ count: Int, _ type: T.Type) -> UnsafeMutablePointer<T> {
            let start = at.assumingMemoryBound(to: type)
            at += count * MemoryLayout<T>.stride
            return start
        }
        literalCounts = take(Self.literalRoom, UInt32.self)
        distanceCounts = take(Self.distanceRoom, UInt32.self)
        literalCodes = take(Self.literalRoom, UInt32.self)
        distanceCodes = take(Self.distanceRoom, UInt32.self)
        fixedLiteralCodes = take(Self.literalRoom, UInt32.self)
        fixedDistanceCodes = take(Self.distanceRoom, UInt32.self)
        lengthCodes = take(Self.lengthRoom, UInt32.self)
        lengthCounts = take(Self.lengthRoom, UInt32.self)
        code = PrefixCode(scratch: at)
        at += PrefixCode.scratchSize
        description = take(Self.literalRoom + Self.distanceRoom, UInt16.self)
        lengths = take(Self.literalRoom + Self.distanceRoom, UInt8.self)
        lengthLengths = take(Self.lengthRoom, UInt8.self)
        for symbol in 0..<288 {
            lengths[symbol] = symbol < 144 ? 8 : symbol < 256 ? 9 : symbol < 280 ? 7 : 8
        }
        code.assign(lengths, 288, fixedLiteralCodes)
        for symbol in 0..<30 { lengths[symbol] = 5 }
        code.assign(lengths, 30, fixedDistanceCodes)
    }

    /// Writes a block.
    ///
    /// - Parameters:
    ///   - writer: what it gets is at most 42 bits more than the block's `size` bytes.
    ///   - bytes: what the block gives, for the case that it is stored; at most 65,535.
    ///   - symbols: `count` symbols as `FrameDeflater` has found and counted them.
    func write(
        _ writer: inout BitWriter, _ bytes: UnsafeRawPointer, _ size: Int, _ symbols: UnsafePointer<UInt32>,
        _ count: Int
    ) {
        literalCounts[DeflateCode.endOfBlock] = 1
        var extra: UInt64 = 0
        for code in 8..<28 { extra &+= UInt64(literalCounts[257 &+ code]) &* DeflateCode.lengthExtra(code) }
        for code in 4..<DeflateCode.distances {
            extra &+= UInt64(distanceCounts[code]) &* DeflateCode.distanceExtra(code)
        }
        let fixed = 3 &+ extra &+ fixedCost()
        let stored = 42 &+ 8 &* UInt64(truncatingIfNeeded: size)
        var own = UInt64.max
        var head = Head()
        if fixed > Self.worthOwnCodes {
            head = makeOwnCodes()
            own = 3 &+ extra &+ head.bits
        }
        if min(fixed, own) > stored {
            writer.add(0, 3)
            writer.align()
            let length = UInt64(truncatingIfNeeded: size) & 0xFFFF
            writer.add(length | (length ^ 0xFFFF) &<< 16, 32)
            writer.store()
            memcpy(writer.next, bytes, size)
            writer.skip(size)
        } else if own < fixed {
            writer.add(2 &<< 1, 3)
            write(&writer, head)
            write(&writer, symbols, count, literalCodes, distanceCodes)
        } else {
            writer.add(1 &<< 1, 3)
            write(&writer, symbols, count, fixedLiteralCodes, fixedDistanceCodes)
        }
        memset(literalCounts, 0, 4 &* Self.literalRoom)
        memset(distanceCounts, 0, 4 &* Self.distanceRoom)
    }

    /// The bits of all symbols with the fixed codes, without extra bits.
    private func fixedCost() -> UInt64 {
        var bits: UInt32 = 0
        for symbol in 0..<DeflateCode.literals {
            bits &+= literalCounts[symbol] &* (fixedLiteralCodes[symbol] &>> 16)
        }
        for symbol in 0..<DeflateCode.distances { bits &+= distanceCounts[symbol] &* 5 }
        return UInt64(bits)
    }

    /// How the own codes of a block are told.
    private struct Head {
        var literals = 0
        var distances = 0
        /// Of the code for lengths.
        var lengths = 0
        var descriptions = 0
        /// What the block takes with these codes, but its type and extra bits.
        var bits: UInt64 = 0
    }

    /// Makes the codes that are best for the symbols counted.
    private func makeOwnCodes() -> Head {
        var head = Head()
        head.bits = code.make(literalCounts, DeflateCode.literals, limit: 15, lengths, literalCodes)
        head.literals = DeflateCode.literals
        while lengths[head.literals &- 1] == 0 { head.literals &-= 1 }
        let distanceLengths = lengths + head.literals
        head.bits &+= code.make(distanceCounts, DeflateCode.distances, limit: 15, distanceLengths, distanceCodes)
        head.distances = DeflateCode.distances
        while distanceLengths[head.distances &- 1] == 0 { head.distances &-= 1 }

        head.descriptions = describe(head.literals &+ head.distances)
        head.bits &+= code.make(lengthCounts, 19, limit: 7, lengthLengths, lengthCodes)
        head.lengths = 19
        while lengthLengths[Int(Self.order[head.lengths &- 1])] == 0 { head.lengths &-= 1 }
        head.lengths = max(4, head.lengths)
        head.bits &+= 14 &+ 3 &* UInt64(truncatingIfNeeded: head.lengths)
        for symbol in 16..<19 { head.bits &+= UInt64(lengthCounts[symbol]) &* Self.repeatBits(symbol) }
        return head
    }

    /// The extra bits of a code for lengths.
    @inline(__always)
    private static func repeatBits(_ symbol: Int) -> UInt64 {
        symbol < 16 ? 0 : symbol == 16 ? 2 : symbol == 17 ? 3 : 7
    }

    /// Puts the first `count` lengths into codes for lengths.
    ///
    /// - Returns: the number of these.
    private func describe(_ count: Int) -> Int {
        memset(lengthCounts, 0, 4 &* Self.lengthRoom)
        var size = 0
        func put(_ symbol: Int, _ extra: Int = 0) {
            lengthCounts[symbol] &+= 1
            description[size] = UInt16(truncatingIfNeeded: symbol | extra &<< 5)
            size &+= 1
        }
        var at = 0
        while at < count {
            let length = lengths[at]
            var run = 1
            while at &+ run < count, lengths[at &+ run] == length { run &+= 1 }
            at &+= run
            if length == 0 {
                while run >= 11 {
                    let part = min(run, 138)
                    put(18, part &- 11)
                    run &-= part
                }
                if run >= 3 {
                    put(17, run &- 3)
                    run = 0
                }
            } else {
                put(Int(length))
                run &-= 1
                while run >= 3 {
                    let part = min(run, 6)
                    put(16, part &- 3)
                    run &-= part
                }
            }
            while run > 0 {
                put(Int(length))
                run &-= 1
            }
        }
        return size
    }

    private func write(_ writer: inout BitWriter, _ head: Head) {
        writer.add(UInt64(truncatingIfNeeded: head.literals &- 257), 5)
        writer.add(UInt64(truncatingIfNeeded: head.distances &- 1), 5)
        writer.add(UInt64(truncatingIfNeeded: head.lengths &- 4), 4)
        for index in 0..<head.lengths {
            writer.add(UInt64(lengthLengths[Int(Self.order[index])]), 3)
            writer.store()
        }
        for index in 0..<head.descriptions {
            let entry = Int(description[index])
            let symbol = entry & 31
            writer.add(UInt64(lengthCodes[symbol] & 0xFFFF), UInt64(lengthLengths[symbol]))
            writer.add(UInt64(truncatingIfNeeded: entry &>> 5), Self.repeatBits(symbol))
            writer.store()
        }
    }

    private func write(
        _ writer: inout BitWriter, _ symbols: UnsafePointer<UInt32>, _ count: Int,
        _ literals: UnsafePointer<PrefixCode.Entry>, _ distances: UnsafePointer<PrefixCode.Entry>
    ) {
        var to = writer
        for index in 0..<count {
            let symbol = symbols[index]
            if symbol & FrameDeflater.matchMark == 0 {
                let entry = literals[Int(symbol & 0xFF)]
                to.add(UInt64(entry & 0xFFFF), UInt64(entry &>> 16))
            } else {
                let length = Int(symbol &>> 16 & 0x1FF)
                let lengthCode = DeflateCode.lengthCode(length)
                let lengthEntry = literals[257 &+ lengthCode]
                let lengthBits = DeflateCode.lengthExtra(lengthCode)
                to.add(UInt64(lengthEntry & 0xFFFF), UInt64(lengthEntry &>> 16))
                // The extra bits are the lowest ones of what the code counts from.
                to.add(UInt64(truncatingIfNeeded: length &- 3) & ((1 &<< lengthBits) &- 1), lengthBits)
                let distance = Int(symbol & 0x7FFF)
                let distanceCode = DeflateCode.distanceCode(distance)
                let distanceEntry = distances[distanceCode]
                let distanceBits = DeflateCode.distanceExtra(distanceCode)
                to.add(UInt64(distanceEntry & 0xFFFF), UInt64(distanceEntry &>> 16))
                to.add(UInt64(truncatingIfNeeded: distance) & ((1 &<< distanceBits) &- 1), distanceBits)
            }
            to.store()
        }
        let end = literals[DeflateCode.endOfBlock]
        to.add(UInt64(end & 0xFFFF), UInt64(end &>> 16))
        to.store()
        writer = to
    }
}
