import CBLIP

/// The head of a reply.
final class Reply: @unchecked Sendable {
    let handle: OpaquePointer
    let isError: Bool
    let number: UInt64
    let flags: [String]
    /// In the order they came.
    let properties: [(String, String)]

    /// Takes over the reference.
    init(_ handle: OpaquePointer) {
        self.handle = handle
        var kind: Int32 = 0
        _ = blip_message_type(handle, &kind)
        isError = kind == BLIP_MESSAGE_ERROR
        var number: UInt64 = 0
        _ = blip_message_number(handle, &number)
        self.number = number
        var bits: UInt32 = 0
        _ = blip_message_flags(handle, &bits)
        var flags: [String] = []
        if bits & BLIP_FLAG_COMPRESSED != 0 { flags.append("compressed") }
        if bits & BLIP_FLAG_URGENT != 0 { flags.append("urgent") }
        self.flags = flags
        var count = 0
        _ = blip_message_property_count(handle, &count)
        var properties: [(String, String)] = []
        for index in 0..<count {
            var key = blip_slice()
            var value = blip_slice()
            guard blip_message_property_at(handle, index, &key, &value) >= 0 else { continue }
            properties.append((key.string, value.string))
        }
        self.properties = properties
    }

    deinit {
        blip_message_release(handle)
    }

    func property(_ name: String) -> String? {
        properties.first { $0.0 == name }?.1
    }

    /// Of an error reply. Without them it is BLIP's and means "unspecified" (599).
    var domain: String { property("Error-Domain") ?? "BLIP" }
    /// "DOMAIN/code: text" on one line.
    func errorText(_ body: some Collection<UInt8>) -> String {
        let text = Terminal.escape(String(decoding: body, as: UTF8.self))
        return "\(Terminal.escape(domain))/\(code)\(text.isEmpty ? "" : ": \(text)")"
    }

    var code: Int { property("Error-Code").flatMap { Int($0) } ?? 599 }
}
