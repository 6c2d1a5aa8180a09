import CBLIP

/// A line of the log on its way through a queue.
final class LogLine: @unchecked Sendable {
    let domain: StaticString
    private let bytes: UnsafeMutableRawBufferPointer

    init(_ domain: StaticString, _ text: String) {
        self.domain = domain
        var text = text
        bytes = text.withUTF8 { utf8 in
            let bytes = UnsafeMutableRawBufferPointer.allocate(byteCount: utf8.count, alignment: 1)
            bytes.copyMemory(from: UnsafeRawBufferPointer(utf8))
            return bytes
        }
    }

    deinit { bytes.deallocate() }

    var domainSlice: blip_slice { blip_slice(domain.bytes) }
    var textSlice: blip_slice { blip_slice(UnsafeRawBufferPointer(bytes)) }
}
