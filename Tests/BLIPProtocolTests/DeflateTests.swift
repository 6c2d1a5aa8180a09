import CZlib
import Foundation
import Testing

@testable import BLIPProtocol

/// Memory that ends where no byte may be read or written.
private final class Guarded {
    private let memory: UnsafeMutableRawPointer
    private let page: Int
    private let pages: Int

    init(_ size: Int) throws {
        page = Int(getpagesize())
        pages = size / page + 1
        let flags = MAP_PRIVATE | MAP_ANONYMOUS
        memory = try #require(mmap(nil, (pages + 1) * page, PROT_READ | PROT_WRITE, flags, -1, 0))
        try #require(memory != MAP_FAILED)
        mprotect(memory + pages * page, page, PROT_NONE)
    }

    deinit { munmap(memory, (pages + 1) * page) }

    /// The last `size` bytes.
    func last(_ size: Int) -> UnsafeMutableRawPointer { memory + pages * page - size }

    /// The last bytes, set to `bytes`.
    func put(_ bytes: [UInt8]) -> UnsafeMutableRawPointer {
        let start = last(bytes.count)
        bytes.withUnsafeBytes { if let from = $0.baseAddress { memcpy(start, from, bytes.count) } }
        return start
    }
}

/// zlib's inflater, which tells whether a frame ends as deployed readers want it.
private final class Reference {
    let inflater: Inflater

    init() throws { inflater = try #require(Inflater(windowBits: -15)) }

    /// What a frame with its trailer gives; nil if it is damaged.
    func inflate(_ frame: [UInt8], most: Int = 1 << 20) -> [UInt8]? {
        var input = frame
        var output = [UInt8](repeating: 0, count: most)
        let z = inflater.stream
        let size = input.withUnsafeMutableBufferPointer { input in
            output.withUnsafeMutableBufferPointer { output -> Int? in
                z.pointee.next_in = input.baseAddress
                z.pointee.avail_in = uInt(input.count)
                z.pointee.next_out = output.baseAddress
                z.pointee.avail_out = uInt(output.count)
                let status = CZlib.inflate(z, Z_SYNC_FLUSH)
                guard status == Z_OK || status == Z_BUF_ERROR, z.pointee.avail_in == 0 else { return nil }
                return output.count - Int(z.pointee.avail_out)
            }
        }
        return size.map { Array(output.prefix($0)) }
    }

    /// The last frame ended on a byte, between two blocks.
    var isBetweenBlocks: Bool { inflater.stream.pointee.data_type & (128 | 64 | 63) == 128 }
}

private let trailer: [UInt8] = [0, 0, 0xFF, 0xFF]

extension Deflater {
    /// A frame with its trailer. Checks that nothing is written behind the room.
    fileprivate func frame(_ plain: [UInt8]) throws -> [UInt8] {
        let from = try Guarded(plain.count)
        // What the engine makes sure of: a frame never grows by more than this.
        let room = plain.count + plain.count >> 10 + 32 + 64
        let memory = try Guarded(room)
        var input = UnsafeRawBufferPointer(start: from.put(plain), count: plain.count)
        let to = memory.last(room)
        var output = UnsafeMutableRawBufferPointer(start: to, count: room)
        try #require(deflate(&input, into: &output, .sync) == .running && input.isEmpty)
        let size = room - output.count
        #expect(size >= 5 && size <= plain.count + plain.count >> 10 + 32)
        let frame = Array(UnsafeRawBufferPointer(start: to, count: size))
        try #require(frame.suffix(4) == trailer)
        return frame
    }
}

extension FrameInflater {
    /// What a frame with its trailer gives, taken in pieces of `piece` bytes; nil if it is damaged.
    fileprivate func bytes(_ frame: [UInt8], piece: Int = 4096, most: Int = 1 << 20) throws -> [UInt8]? {
        let input = try Guarded(frame.count)
        let output = try Guarded(piece)
        give(input.put(frame), frame.count)
        var result: [UInt8] = []
        while result.count <= most {
            guard let count = inflate(output.last(piece), piece) else { return nil }
            result += UnsafeRawBufferPointer(start: output.last(piece), count: count)
            if count < piece { return result }
        }
        return nil
    }
}

/// Bytes of very different kinds.
private func material(_ random: inout Seeded, _ most: Int) -> [UInt8] {
    let size = Int.random(in: 1...(Bool.random(using: &random) ? most : min(most, 600)), using: &random)
    switch Int.random(in: 0..<7, using: &random) {
    case 0: return noise(size, random.next())
    case 1: return text(size)
    case 2: return [UInt8](repeating: UInt8.random(in: 0...255, using: &random), count: size)
    case 3:
        // Few different bytes, no order.
        return (0..<size).map { _ in UInt8.random(in: 65...70, using: &random) }
    case 4:
        var json = "["
        while json.utf8.count < size {
            json +=
                "{\"id\":\"\(String(random.next(), radix: 16))\",\"state\":\"open\",\"visits\":\(random.next() % 99)},"
        }
        return Array(json.utf8.prefix(size))
    case 5:
        // Copies from far and near among noise.
        var bytes = noise(min(size, 300), random.next())
        while bytes.count < size {
            if Bool.random(using: &random) {
                let at = Int.random(in: 0..<bytes.count, using: &random)
                bytes += Array(bytes[at...].prefix(Int.random(in: 1...400, using: &random)))
            } else {
                bytes += noise(Int.random(in: 1...30, using: &random), random.next())
            }
        }
        return Array(bytes.prefix(size))
    default:
        // Frequencies as different as can be, for codes that become too long.
        return (0..<size).map { _ in UInt8(truncatingIfNeeded: random.next().trailingZeroBitCount) }
    }
}

@Suite("Deflate")
struct DeflateTests {
    @Test("zlib, by itself and behind ours, inflates what our compressor makes of anything", arguments: [Int32](1...9))
    func roundTrip(level: Int32) throws {
        var random = Seeded(UInt64(level))
        let room = 40_000
        let deflater = try #require(Deflater(level: level, .raw))
        let reference = try Reference()
        let inflater = try #require(FrameInflater())
        for index in 0..<(level == 9 ? 60 : 150) {
            let plain = material(&random, room)
            let frame = try deflater.frame(plain)
            try #require(reference.inflate(frame) == plain, "frame \(index) of \(plain.count)")
            try #require(reference.isBetweenBlocks)
            try #require(try inflater.bytes(frame, piece: Int.random(in: 1...9000, using: &random)) == plain)
        }
    }

    @Test("A long stream of small frames keeps its history right over all borders")
    func smallFrames() throws {
        var random = Seeded(77)
        for level: Int32 in [1, 6, 7] {
            let deflater = try #require(Deflater(level: level, .raw))
            let reference = try Reference()
            let inflater = try #require(FrameInflater())
            for index in 0..<3000 {
                let plain = material(&random, 300)
                let frame = try deflater.frame(plain)
                try #require(reference.inflate(frame, most: 1000) == plain, "frame \(index)")
                try #require(try inflater.bytes(frame) == plain, "frame \(index)")
            }
        }
    }

    @Test("Every size of a frame passes, and no match is further away than the window is large")
    func sizes() throws {
        let deflater = try #require(Deflater(level: 6, .raw))
        let reference = try Reference()
        for size in Array(1..<300) + [16383, 16384, 16385, 32767, 32768, 32769, 49152, 65535, 65536, 70_000] {
            let plain = noise(size, UInt64(size))
            #expect(reference.inflate(try deflater.frame(plain)) == plain)
        }
        let mark = noise(200, 1)
        for distance in 32560..<32780 {
            let deflater = try #require(Deflater(level: 6, .raw))
            let plain = mark + [UInt8](repeating: 0, count: distance - 200) + mark
            let frame = try deflater.frame(plain)
            #expect(try Reference().inflate(frame) == plain)
        }
    }

    @Test("The size is close to zlib's, and a higher level never makes it much larger")
    func ratio() throws {
        var random = Seeded(5)
        var documents: [[UInt8]] = []
        while documents.count < 200 {
            var json = "["
            while json.utf8.count < 1000 {
                json +=
                    "{\"id\":\"\(String(random.next(), radix: 16))\",\"town\":\"Ulm\",\"visits\":\(random.next() % 50),"
                json += "\"balance\":\(random.next() % 100_000).\(random.next() % 100)},"
            }
            documents.append(Array(json.utf8))
        }
        func size(_ level: Int32) throws -> Double {
            let deflater = try #require(Deflater(level: level, .raw))
            return Double(try documents.reduce(0) { $0 + (try deflater.frame($1)).count })
        }
        let zlib = Double(documents.reduce(into: (0, ZlibPeer(level: 6))) { $0.0 += $0.1.frame($1).count }.0)
        #expect(try size(1) < 1.2 * zlib)
        #expect(try size(6) < 1.15 * zlib)
        #expect(try size(7) <= zlib)
    }

    @Test(
        "Our decompressor inflates what zlib makes at any level, with all kinds of flushes inside",
        arguments: [Int32](0...9))
    func fromZlib(level: Int32) throws {
        var random = Seeded(100 + UInt64(level))
        let peer = ZlibPeer(level: level)
        let inflater = try #require(FrameInflater())
        for index in 0..<120 {
            let plain = material(&random, 40_000)
            let kinds = [Z_PARTIAL_FLUSH, Z_SYNC_FLUSH, Z_FULL_FLUSH, Z_BLOCK]
            let flushes = (0..<Int.random(in: 0...4, using: &random)).map { _ in
                kinds.randomElement(using: &random) ?? 0
            }
            let frame = peer.frame(plain, flushes: flushes)
            try #require(frame.suffix(4) == trailer)
            let piece = Int.random(in: 1...9000, using: &random)
            try #require(try inflater.bytes(frame, piece: piece) == plain, "frame \(index), \(flushes), \(piece)")
            // What go-blip sends at the end of a message that fills its frames exactly: an empty block.
            if index % 5 == 0 { try #require(try inflater.bytes([0] + trailer) == []) }
        }
    }

    @Test("Output in pieces of every small size is the same, also if a piece ends with the frame")
    func pieces() throws {
        var random = Seeded(9)
        for piece in 1...70 {
            let peer = ZlibPeer(level: 6)
            let inflater = try #require(FrameInflater())
            for _ in 0..<6 {
                let plain = Array(material(&random, 900).prefix(piece * Int.random(in: 1...5, using: &random)))
                #expect(try inflater.bytes(peer.frame(plain), piece: piece) == plain)
            }
        }
    }

    @Test("Damaged frames end in an error or in bytes that zlib gives too, and nothing outside is touched")
    func damaged() throws {
        var random = Seeded(4711)
        for round in 0..<4000 {
            let inflater = try #require(FrameInflater())
            let reference = try Reference()
            let peer = ZlibPeer(level: Int32(round % 10))
            let intact = Int.random(in: 0...2, using: &random)
            for _ in 0..<intact {
                let plain = material(&random, 2000)
                let frame = peer.frame(plain)
                try #require(try inflater.bytes(frame) == plain && reference.inflate(frame) == plain)
            }
            var frame = peer.frame(material(&random, 2000))
            switch round % 4 {
            case 0: frame = Array(frame.prefix(Int.random(in: 0..<frame.count, using: &random))) + trailer
            case 1: frame = noise(Int.random(in: 1...300, using: &random), random.next()) + trailer
            case 2:
                // A block with its own codes that are noise.
                frame = noise(Int.random(in: 20...200, using: &random), random.next()) + trailer
                frame[0] = frame[0] & 0xF8 | 4
            default:
                for _ in 0..<Int.random(in: 1...4, using: &random) {
                    frame[Int.random(in: 0..<frame.count, using: &random)] ^=
                        1 << UInt8.random(in: 0..<8, using: &random)
                }
            }
            let piece = Int.random(in: 1...5000, using: &random)
            let ours = try inflater.bytes(frame, piece: piece, most: 1 << 17)
            guard let ours, let theirs = reference.inflate(frame) else { continue }
            // Where the data breaks off inside of a block, one of them may have seen a little more.
            let both = min(ours.count, theirs.count)
            try #require(ours.prefix(both) == theirs.prefix(both), "round \(round)")
            try #require(max(ours.count, theirs.count) - both < 300, "round \(round)")
        }
    }

    @Test("A stream that ends is refused, with and without bytes behind its end")
    func ends() throws {
        // The fixed codes' empty last block; a stored last block of one byte.
        for frame: [UInt8] in [
            [3, 0], [3, 0] + trailer, [1, 1, 0, 0xFE, 0xFF, 65], [1, 1, 0, 0xFE, 0xFF, 65] + trailer,
        ] {
            for piece in [1, 2, 100] { #expect(try FrameInflater()?.bytes(frame, piece: piece) == nil) }
        }
    }
}
