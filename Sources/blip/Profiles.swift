import CBLIP

/// The profiles that `blip serve` answers. Handlers run on the library's loop threads, so none may block.
enum Profiles {
    static func install(on listener: OpaquePointer) {
        set(listener, "echo", BLIP_HANDLER_STREAM) { _, request, _ in request.map { EchoProfile.handle($0) } ?? BLIP_OK
        }
        set(listener, "sink", BLIP_HANDLER_STREAM) { _, request, _ in request.map { SinkProfile.handle($0) } ?? BLIP_OK
        }
        set(listener, "source", 0) { _, request, _ in request.map { SourceProfile.handle($0) } ?? BLIP_OK }
        set(listener, "error", 0) { _, request, _ in request.map { ErrorProfile.handle($0) } ?? BLIP_OK }
        set(listener, "sleep", 0) { _, request, _ in request.map { SleepProfile.handle($0) } ?? BLIP_OK }
    }

    private static func set(
        _ listener: OpaquePointer, _ profile: String, _ flags: UInt32, _ handler: @escaping blip_request_fn
    ) {
        _ = profile.withSlice { blip_listener_set_handler(listener, $0, flags, handler, nil, nil) }
    }

    static func property(_ name: String, of message: OpaquePointer) -> String? {
        name.withSlice { key in Library.slice { blip_message_property(message, key, $0) } }?.string
    }

    /// A property that is a whole number, or an error reply that says so.
    static func number(
        _ name: String, of request: OpaquePointer, profile: String, _ range: ClosedRange<UInt64>
    ) -> UInt64? {
        let text = property(name, of: request)
        if let number = text.flatMap({ UInt64($0) }), range.contains(number) { return number }
        respond(
            to: request, code: 400,
            "\(profile) wants a property \"\(name)\" from \(range.lowerBound) to \(range.upperBound)")
        return nil
    }

    static func respond(to request: OpaquePointer, code: Int32, _ text: String) {
        _ = text.withSlice { blip_message_respond_error(request, blip_slice(), code, $0) }
    }

    /// A request that came without a wish for a reply is only consumed.
    static func wantsReply(_ request: OpaquePointer) -> Bool {
        var flags: UInt32 = 0
        return blip_message_flags(request, &flags) >= 0 && flags & BLIP_FLAG_NO_REPLY == 0
    }
}
