import CBLIP

/// Who takes the log of a runtime: the function at once, or by way of a queue.
struct LogTarget {
    let handler: Handler<blip_log_fn>
    let queue: EventQueue?

    func take(_ level: Int32, _ domain: StaticString, _ text: String) {
        if let queue {
            queue.pushIfRoom(Event(.log(handler, LogLine(domain, text)), value: Int64(level)))
            return
        }
        var text = text
        text.withUTF8 {
            handler.function?(level, blip_slice(domain.bytes), blip_slice(UnsafeRawBufferPointer($0)), handler.context)
        }
    }
}
