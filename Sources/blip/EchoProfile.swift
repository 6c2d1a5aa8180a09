import CBLIP

/// `echo`: the request's body, its properties but Profile, and its Compressed and Urgent flags come back.
enum EchoProfile {
    static func handle(_ request: OpaquePointer) -> blip_status {
        // Its body comes after this, as that of every streamed request.
        Profiles.wantsReply(request) ? EchoSpool.start(request) : SinkProfile.handle(request)
    }

    /// Answers with what `fill` makes the body.
    static func answer(_ request: OpaquePointer, fill: (OpaquePointer) -> blip_status) -> blip_status {
        var response: OpaquePointer?
        var status = blip_response_new(request, &response)
        guard status >= 0, let response else { return status }
        defer { blip_message_release(response) }
        status = copyProperties(from: request, to: response)
        guard status >= 0 else { return status }
        var flags: UInt32 = 0
        _ = blip_message_flags(request, &flags)
        status = blip_message_set_flags(response, flags & (BLIP_FLAG_COMPRESSED | BLIP_FLAG_URGENT))
        guard status >= 0 else { return status }
        status = fill(response)
        guard status >= 0 else { return status }
        return blip_message_respond(request, response)
    }

    private static func copyProperties(from request: OpaquePointer, to response: OpaquePointer) -> blip_status {
        guard let encoded = Library.slice({ blip_message_properties(request, $0) }) else {
            return BLIP_ERROR_PROPERTIES
        }
        let bytes = encoded.bytes
        // Nearly every peer sends Profile first: what follows needs no second look.
        if let rest = dropProfile(bytes) {
            if rest.isEmpty { return BLIP_OK }
            let status = blip_message_set_properties(response, blip_slice(rest))
            // Two properties of one key cannot be sent: below, the first counts.
            if status != BLIP_ERROR_ARGUMENT { return status }
        }
        var count = 0
        _ = blip_message_property_count(request, &count)
        for index in 0..<count {
            var key = blip_slice()
            var value = blip_slice()
            guard blip_message_property_at(request, index, &key, &value) >= 0 else { continue }
            if key.bytes.elementsEqual("Profile".utf8) { continue }
            var known = blip_slice()
            if blip_message_property(response, key, &known) >= 0 { continue }
            let status = blip_message_set_property(response, key, value)
            guard status >= 0 else { return status }
        }
        return BLIP_OK
    }

    /// What is left behind a first pair whose key is Profile, if that is the only one.
    private static func dropProfile(_ bytes: UnsafeRawBufferPointer) -> UnsafeRawBufferPointer? {
        let key: StaticString = "Profile\0"
        let length = key.utf8CodeUnitCount
        guard bytes.count > length else { return nil }
        for index in 0..<length where bytes[index] != key.utf8Start[index] { return nil }
        guard let end = bytes[length...].firstIndex(of: 0) else { return nil }
        return UnsafeRawBufferPointer(rebasing: bytes[(end + 1)...])
    }
}
