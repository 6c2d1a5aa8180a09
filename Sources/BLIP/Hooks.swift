import CBLIP

/// The modules of a connection, put together for use. Immutable; a connection without modules has none.
final class Hooks: @unchecked Sendable {
    let attachments: [Attachment]
    /// What at least one observer wants.
    let observed: UInt32
    /// The directions in which at least one interceptor looks.
    let intercepted: UInt32

    init?(_ attachments: [Attachment]) {
        guard !attachments.isEmpty else { return nil }
        self.attachments = attachments
        observed = attachments.reduce(0) { $0 | $1.module.observed }
        intercepted = attachments.reduce(0) { $0 | $1.module.intercepted }
    }

    /// Tells the observers that want to know. Loop thread.
    func tell(_ connection: Connection, _ what: UInt32, _ message: BLIPMessage?, _ status: blip_status) {
        for attachment in attachments where attachment.module.observed & what != 0 && !attachment.isRemoved {
            if let native = attachment.module.native {
                native(connection, what, message, status)
            } else if let queue = attachment.module.queue {
                connection.deliver(Event(attachment, what, connection, message, status), to: queue)
            } else {
                attachment.call(connection.handle, what, message, status)
            }
        }
    }

    /// Asks the interceptors, one after another; false if one has dropped the message. Loop thread.
    func pass(_ connection: Connection, _ message: BLIPMessage, _ direction: UInt32) -> Bool {
        for attachment in attachments where attachment.module.intercepted & direction != 0 {
            guard !attachment.isRemoved, let interceptor = attachment.module.interceptor else { continue }
            var status = BLIP_OK
            lend(message) { status = interceptor.function?(connection.handle, $0, interceptor.context) ?? BLIP_OK }
            if status != BLIP_OK { return false }
        }
        return true
    }
}
