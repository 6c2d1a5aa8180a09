import CZlib

@testable import BLIPProtocol

/// The decompressor of version 3, fed frames that are good, damaged or made up, into pieces of odd sizes, beside zlib:
/// what zlib reads it must read the same, nothing is written beyond the room, and no distance may lead to before the
/// stream's begin.
@c(LLVMFuzzerTestOneInput)
public func fuzz(_ data: UnsafePointer<UInt8>?, _ size: Int) -> Int32 {
    var input = Input(data, size)
    guard let inflater = FrameInflater(), let reference = Inflater(windowBits: -15) else { finding("no memory") }
    let peer = ZlibPeer(level: Int32(input.byte() % 10))
    var total = 0
    while !input.isEmpty, total < 4 << 20 {
        let shape = input.byte()
        var frame = input.take(Int(input.byte()) << Int(shape & 3))
        if shape & 4 != 0 { frame += [UInt8](repeating: shape, count: input.word()) }
        if shape & 8 != 0 { frame = Array(peer.frame(frame).dropLast(4)) }
        if shape & 16 != 0, !frame.isEmpty { frame[input.word() % frame.count] ^= 1 << (input.byte() & 7) }
        if shape & 32 != 0 { frame.removeLast(min(frame.count, Int(input.byte()))) }
        guard !frame.isEmpty else { continue }
        frame += [0, 0, 0xFF, 0xFF]

        let (expected, isGood, text) = plain(reference.stream, frame)
        total += expected.count
        guard expected.count < maximum else { return 0 }
        let room = shape & 64 == 0 ? 16384 : 1 + Int(input.byte())
        let read = pieces(inflater, frame, room)
        guard isGood else {
            check(!text.contains("distance too far") || read == nil, "a distance to before the begin is taken")
            return 0
        }
        check(read != nil, "refused, although zlib reads \(expected.count) bytes")
        check(read == expected, "\(read?.count ?? 0) bytes, or others, instead of \(expected.count)")
    }
    return 0
}

private let maximum = 4 << 20

/// What zlib makes of a frame, whether it is a good one, and what zlib complains of.
private func plain(_ z: UnsafeMutablePointer<z_stream>, _ frame: [UInt8]) -> ([UInt8], Bool, String) {
    var frame = frame
    var result: [UInt8] = []
    var output = [UInt8](repeating: 0, count: 65536)
    return frame.withUnsafeMutableBufferPointer { from in
        z.pointee.next_in = from.baseAddress
        z.pointee.avail_in = uInt(from.count)
        while true {
            let (size, status) = output.withUnsafeMutableBufferPointer { to -> (Int, Int32) in
                z.pointee.next_out = to.baseAddress
                z.pointee.avail_out = uInt(to.count)
                let status = CZlib.inflate(z, Z_SYNC_FLUSH)
                return (to.count - Int(z.pointee.avail_out), status)
            }
            result += output.prefix(size)
            guard status == Z_OK || status == Z_BUF_ERROR else {
                return (result, false, z.pointee.msg.map { String(cString: $0) } ?? "")
            }
            if size < output.count || result.count >= maximum {
                // A flush ends between two blocks, none of which is the last: what does not is no frame.
                return (result, z.pointee.avail_in == 0 && z.pointee.data_type & 0xC0 == 0x80, "")
            }
        }
    }
}

/// What the library's decompressor makes of it, `room` bytes at a time; nil if it refuses.
private func pieces(_ inflater: FrameInflater, _ frame: [UInt8], _ room: Int) -> [UInt8]? {
    let mark: UInt8 = 0xA5
    return withExact(frame) { frame -> [UInt8]? in
        guard let base = frame.baseAddress else { return [] }
        inflater.give(base, frame.count)
        var result: [UInt8] = []
        // The decompressor's own code is not instrumented: what lies around its output shows whether it went too far.
        var output = [UInt8](repeating: mark, count: room + 128)
        while true {
            let produced = output.withUnsafeMutableBytes { raw -> Int? in
                raw.baseAddress.flatMap { inflater.inflate($0 + 64, room) }
            }
            check(output.prefix(64).allSatisfy { $0 == mark }, "written before the room")
            check(output.suffix(64).allSatisfy { $0 == mark }, "written behind the room")
            guard let produced else { return nil }
            check(produced >= 0 && produced <= room, "\(produced) bytes in room for \(room)")
            result += output[64..<64 + produced]
            if produced < room { return result }
            guard result.count <= 2 * maximum else { return result }
        }
    }
}
