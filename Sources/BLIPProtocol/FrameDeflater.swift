#if canImport(Glibc)
    import Glibc
#elseif canImport(Musl)
    import Musl
#endif

/// The compressor of one direction of a version 3 connection: one raw deflate stream (RFC 1951) over its compressed
/// frames, each of which ends on a byte with the trailer of a flush, that is cut.
///
/// *Function.* What is to be compressed is written into `input`, behind the history that matches may refer to.
/// `deflate` finds matches in it, chooses for each block what takes the fewest bits (stored, fixed or its own codes)
/// and writes the frame. There is no state between frames but the history, so a frame never depends on how the output
/// of another one was cut.
///
/// *Why not zlib or ISA-L.* Of JSON in frames of 1 KiB, zlib at level 6 takes five times as long for 6 % less, and
/// ISA-L as long for 8 % more.
final class FrameDeflater {
    /// How far back a match may be.
    static let window = 32768
    /// The most bytes that share codes. Blocks are what costs memory for symbols.
    static let blockSize = 16384
    static let shortestMatch = 4
    static let longestMatch = 258
    static let hashBits: UInt64 = 14
    /// What is read and written beyond ends, eight bytes at a time.
    private static let slack = 16

    let effort: Effort
    private let memory: UnsafeMutableRawPointer
    /// The history and, from `end` on, `input`.
    let bytes: UnsafeMutableRawPointer
    private let capacity: Int
    /// The most bytes that `input` holds.
    let inputRoom: Int
    /// By hash: the last position with it.
    let heads: UnsafeMutablePointer<UInt16>
    /// By position: how far back the one before with the same hash is. Only if several are looked at.
    let links: UnsafeMutablePointer<UInt16>
    /// What the matching of a block found: a literal, or a match as `matchMark`, length and distance less 1.
    let symbols: UnsafeMutablePointer<UInt32>
    let literalCounts: UnsafeMutablePointer<UInt32>
    let distanceCounts: UnsafeMutablePointer<UInt32>
    let coder: BlockCoder

    /// The size of the history.
    var end = 0
    /// The position of `bytes` in the stream, modulo 2^16.
    var base: UInt16 = 0
    /// Positions in `bytes` before this are in `heads`.
    var entered = 0

    /// - Parameters:
    ///   - level: 1 to 9.
    ///   - inputRoom: the most bytes that `input` has to hold.
    init?(level: Int32, inputRoom: Int) {
        guard inputRoom >= 0, inputRoom <= Int(Int32.max) else { return nil }
        effort = Effort(level: level)
        self.inputRoom = inputRoom
        capacity = 2 * Self.window + inputRoom
        let headsSize = 2 << Int(Self.hashBits)
        let linksSize = effort.depth > 1 ? 2 * Self.window : 0
        let symbolsSize = 4 * Self.blockSize
        let sizes = [headsSize, linksSize, symbolsSize, BlockCoder.size, capacity + Self.slack]
        guard let memory = calloc(1, sizes.reduce(0, +)) else { return nil }
        self.memory = memory
        var at = memory
        heads = at.assumingMemoryBound(to: UInt16.self)
        at += headsSize
        links = at.assumingMemoryBound(to: UInt16.self)
        at += linksSize
        symbols = at.assumingMemoryBound(to: UInt32.self)
        at += symbolsSize
        coder = BlockCoder(at)
        literalCounts = coder.literalCounts
        distanceCounts = coder.distanceCounts
        at += BlockCoder.size
        bytes = at
    }

    deinit {
        free(memory)
    }

    /// Where to write what `deflate` is to compress, up to `inputRoom` bytes. Valid until `deflate`.
    var input: UnsafeMutableRawPointer {
        if capacity - end < inputRoom {
            // Only the last part of the history is in reach.
            let dropped = end - Self.window
            memmove(bytes, bytes + dropped, Self.window)
            end = Self.window
            entered = max(0, entered - dropped)
            base &+= UInt16(truncatingIfNeeded: dropped)
        }
        return bytes + end
    }

    /// The most bytes that `count` bytes take, and what is written beyond them.
    static func bound(_ count: Int) -> Int {
        count + (count / blockSize + 1) * 6 + slack
    }

    /// Compresses the first `count` bytes of `input` as one frame.
    ///
    /// - Parameter room: what may be written to at `to`; what is behind the frame has no meaning.
    /// - Returns: the size of the frame without the trailer; nil, with nothing done, if `room` is less than `bound` or
    ///   `count` more than `inputRoom`.
    func deflate(_ count: Int, _ to: UnsafeMutableRawPointer, _ room: Int) -> Int? {
        guard count >= 0, count <= min(inputRoom, capacity - end), room >= Self.bound(count) else { return nil }
        var writer = BitWriter(to)
        let last = end + count
        while end < last {
            // Halves rather than a full block and a few bytes.
            let left = last - end
            let size = left <= Self.blockSize ? left : left < 2 * Self.blockSize ? left / 2 : Self.blockSize
            let matches = findMatches(end, end + size, last)
            coder.write(&writer, bytes + end, size, symbols, matches)
            end += size
        }
        // An empty stored block: its type here, the rest of it is the trailer.
        writer.add(0, 3)
        writer.align()
        return writer.next - to
    }
}
