import BLIPProtocol
import CBLIP

/// A `blip_error`: what went wrong, in the words of its domain.
public final class ErrorRecord: SlotOwner, @unchecked Sendable {
    public static var handleKind: HandleKind { .error }
    public var slot: UInt32 = 0

    public let status: blip_status
    public let domain: Text
    public let code: Int64
    public let message: Text

    public init(_ failure: Failure) {
        status = failure.status
        domain = Text(failure.domain)
        code = failure.code
        message = Text(failure.text)
    }

    init(status: blip_status, domain: Text, code: Int64, message: Text) {
        self.status = status
        self.domain = domain
        self.code = code
        self.message = message
    }

    deinit { HandleTable.freeSlot(slot) }
}
