/// How much a level searches.
struct Effort {
    /// How many positions are looked at for one match.
    let depth: Int
    /// A match of this length is taken at once.
    let enough: Int
    /// A match shorter than this is given up if the next byte begins a longer one.
    let lazy: Int

    /// - Parameter level: 1 to 9. Up to 3: what is fastest. Up to 6: as fast, but a better choice among what is found.
    ///   7: about the size of zlib's level 6. 8: of its level 9. 9: the smallest, at any price.
    init(level: Int32) {
        (depth, enough, lazy) =
            switch level {
            case ...3: (1, 32, 0)
            case ...6: (1, 64, 16)
            case 7: (4, 64, 16)
            case 8: (16, 130, 64)
            default: (256, 258, 258)
            }
    }
}

extension FrameDeflater {
    static let matchMark: UInt32 = 1 << 31
    /// The shortest matches take more bits than their literals if they are from farther away.
    static let nearby = 512

    /// Cuts a block into literals and matches.
    ///
    /// - Parameter frameEnd: up to where bytes may be looked at.
    /// - Returns: their number.
    func findMatches(_ start: Int, _ end: Int, _ frameEnd: Int) -> Int {
        let finder = Finder(
            bytes: bytes, heads: heads, links: links, base: base, depth: effort.depth, enough: effort.enough)
        let symbols = symbols
        let literals = literalCounts
        let distances = distanceCounts
        let lazy = effort.lazy
        // Behind this, the four bytes that are hashed are not all there.
        let hashEnd = frameEnd &- 4
        var count = 0
        var at = start
        // The last bytes of the frame before could not be hashed without what follows them.
        finder.enter(entered, min(start, hashEnd))
        while at < min(end, hashEnd) {
            var match = finder.find(at, end, longerThan: Self.shortestMatch &- 1)
            if match.length == 0 {
                let literal = bytes.load(fromByteOffset: at, as: UInt8.self)
                literals[Int(literal)] &+= 1
                symbols[count] = UInt32(literal)
                count &+= 1
                at &+= 1
                continue
            }
            var known = at &+ 1
            while match.length < lazy, known < min(end, hashEnd) {
                let next = finder.find(known, end, longerThan: match.length)
                known &+= 1
                guard next.length > 0 else { break }
                let literal = bytes.load(fromByteOffset: at, as: UInt8.self)
                literals[Int(literal)] &+= 1
                symbols[count] = UInt32(literal)
                count &+= 1
                at &+= 1
                match = next
            }
            literals[257 &+ DeflateCode.lengthCode(match.length)] &+= 1
            distances[DeflateCode.distanceCode(match.distance &- 1)] &+= 1
            symbols[count] =
                Self.matchMark | UInt32(truncatingIfNeeded: match.length) &<< 16
                | UInt32(truncatingIfNeeded: match.distance &- 1)
            count &+= 1
            at &+= match.length
            finder.enter(known, min(at, hashEnd))
        }
        while at < end {
            let literal = bytes.load(fromByteOffset: at, as: UInt8.self)
            literals[Int(literal)] &+= 1
            symbols[count] = UInt32(literal)
            count &+= 1
            at &+= 1
        }
        entered = max(0, min(end, hashEnd))
        return count
    }
}

/// A match of length 0 is none.
private struct Match {
    var length: Int
    var distance: Int
}

/// The tables of a `FrameDeflater` while it searches in a block.
private struct Finder {
    let bytes: UnsafeMutableRawPointer
    let heads: UnsafeMutablePointer<UInt16>
    let links: UnsafeMutablePointer<UInt16>
    let base: UInt16
    let depth: Int
    let enough: Int

    /// Makes positions known to later searches.
    @inline(__always)
    func enter(_ start: Int, _ end: Int) {
        var at = start
        while at < end {
            _ = enter(at, bytes.loadUnaligned(fromByteOffset: at, as: UInt64.self))
            at &+= 1
        }
    }

    /// Makes a position known.
    ///
    /// - Returns: how far back the last one with the same hash is, as far as the table tells.
    @inline(__always)
    private func enter(_ at: Int, _ value: UInt64) -> UInt16 {
        let position = base &+ UInt16(truncatingIfNeeded: at)
        let hash = ((value &<< 24) &* 0x9E37_79B1_85EB_CA87) &>> (64 &- FrameDeflater.hashBits)
        let head = heads + Int(truncatingIfNeeded: hash)
        let distance = position &- head.pointee
        head.pointee = position
        if depth > 1 { links[Int(position & 0x7FFF)] = distance }
        return distance
    }

    /// The best match at a position, which becomes known.
    ///
    /// - Returns: length 0 if there is none longer than `best`.
    @inline(__always)
    func find(_ at: Int, _ end: Int, longerThan best: Int) -> Match {
        var result = Match(length: 0, distance: 0)
        let here = UnsafeRawPointer(bytes + at)
        // The first bytes, and those that a longer match must have too.
        let first = here.loadUnaligned(as: UInt32.self)
        var distance = Int(enter(at, here.loadUnaligned(as: UInt64.self)))
        let longest = min(end &- at, FrameDeflater.longestMatch)
        let reach = UInt(bitPattern: min(at, FrameDeflater.window))
        // 0 is too far, too.
        guard best < longest, UInt(bitPattern: distance &- 1) < reach else { return result }
        var best = best
        var last = here.loadUnaligned(fromByteOffset: best &- 3, as: UInt32.self)
        let position = Int(base) &+ at
        var left = depth
        repeat {
            let there = here - distance
            if there.loadUnaligned(fromByteOffset: best &- 3, as: UInt32.self) == last,
                there.loadUnaligned(as: UInt32.self) == first
            {
                let length = Self.commonLength(here, there, longest)
                if length > best, length > 4 || distance < FrameDeflater.nearby {
                    best = length
                    result = Match(length: length, distance: distance)
                    if length >= enough || length == longest { break }
                    last = here.loadUnaligned(fromByteOffset: best &- 3, as: UInt32.self)
                }
            }
            left &-= 1
            guard left > 0 else { break }
            distance &+= Int(links[(position &- distance) & 0x7FFF])
        } while UInt(bitPattern: distance &- 1) < reach
        return result
    }

    /// How many bytes are the same, of which the first four are known to be; at most `longest`.
    @inline(__always)
    private static func commonLength(_ a: UnsafeRawPointer, _ b: UnsafeRawPointer, _ longest: Int) -> Int {
        var length = 4
        while length < longest {
            let difference =
                a.loadUnaligned(fromByteOffset: length, as: UInt64.self)
                ^ b.loadUnaligned(fromByteOffset: length, as: UInt64.self)
            if difference != 0 {
                return min(longest, length &+ difference.littleEndian.trailingZeroBitCount &>> 3)
            }
            length &+= 8
        }
        return longest
    }
}
