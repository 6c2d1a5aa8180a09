import CBLIP

/// `source`: as many bytes as the property "size" says, made while they are sent.
///
/// They are lines of 16 bytes: a line's number in 15 digits, from 0, and a line feed. So what is lost or out of place
/// shows.
enum SourceProfile {
    static func handle(_ request: OpaquePointer) -> blip_status {
        guard Profiles.wantsReply(request) else { return BLIP_OK }
        guard let size = Profiles.number("size", of: request, profile: "source", 0...(1 << 40)) else { return BLIP_OK }
        var response: OpaquePointer?
        var status = blip_response_new(request, &response)
        guard status >= 0, let response else { return status }
        defer { blip_message_release(response) }
        var flags: UInt32 = 0
        _ = blip_message_flags(request, &flags)
        status = blip_message_set_flags(response, flags & (BLIP_FLAG_COMPRESSED | BLIP_FLAG_URGENT))
        guard status >= 0 else { return status }
        if size > 0 {
            let context = Unmanaged.passRetained(Lines(size: size)).toOpaque()
            status = blip_message_append_body_pulled(
                response,
                { buffer, capacity, written, context in
                    guard let buffer, let written, let context else { return BLIP_ERROR_ARGUMENT }
                    let lines = Unmanaged<Lines>.fromOpaque(context).takeUnretainedValue()
                    written.pointee = lines.fill(UnsafeMutableRawBufferPointer(start: buffer, count: capacity))
                    return lines.isAtEnd ? BLIP_DATA_END : BLIP_OK
                }, context,
                { context in
                    if let context { Unmanaged<Lines>.fromOpaque(context).release() }
                })
            guard status >= 0 else { return status }
        }
        return blip_message_respond(request, response)
    }

    private final class Lines {
        private let size: UInt64
        private var offset: UInt64 = 0
        private var line: [UInt8] = Array("000000000000000\n".utf8)

        init(size: UInt64) {
            self.size = size
        }

        var isAtEnd: Bool { offset == size }

        func fill(_ buffer: UnsafeMutableRawBufferPointer) -> Int {
            var count = 0
            while count < buffer.count && offset < size {
                let column = Int(offset % 16)
                let wanted = min(16 - column, buffer.count - count, Int(min(16, size - offset)))
                for index in 0..<wanted { buffer[count + index] = line[column + index] }
                count += wanted
                offset += UInt64(wanted)
                if offset % 16 == 0 { advance() }
            }
            return count
        }

        private func advance() {
            var digit = 14
            while digit >= 0 {
                if line[digit] != UInt8(ascii: "9") {
                    line[digit] += 1
                    return
                }
                line[digit] = UInt8(ascii: "0")
                digit -= 1
            }
        }
    }
}
