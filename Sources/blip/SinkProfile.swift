import CBLIP

/// `sink`: takes a body of any size as it comes, and answers with its size in bytes.
enum SinkProfile {
    static func handle(_ request: OpaquePointer) -> blip_status {
        if Profiles.wantsReply(request) {
            let status = blip_message_defer(request)
            guard status >= 0 else { return status }
        }
        let context = Unmanaged.passRetained(Counter(request)).toOpaque()
        return blip_message_set_data_callback(
            request,
            { _, data, status, context in
                guard let context else { return data.size }
                let counter = Unmanaged<Counter>.fromOpaque(context).takeUnretainedValue()
                counter.bytes += UInt64(data.size)
                if status == BLIP_DATA_END { SinkProfile.answer(counter.request, counter.bytes) }
                return data.size
            }, context,
            { context in
                if let context { Unmanaged<Counter>.fromOpaque(context).release() }
            })
    }

    fileprivate static func answer(_ request: OpaquePointer, _ bytes: UInt64) {
        guard Profiles.wantsReply(request) else { return }
        _ = String(bytes).withSlice { blip_message_respond_text(request, $0) }
    }

    /// Keeps the request, which is to be answered, and counts its body.
    private final class Counter {
        let request: OpaquePointer
        var bytes: UInt64 = 0

        init(_ request: OpaquePointer) {
            self.request = request
            _ = blip_message_retain(request)
        }

        deinit {
            blip_message_release(request)
        }
    }
}
