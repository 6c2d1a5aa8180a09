import BLIPProtocol
import CBLIP
import Transport

/// A `blip_transport`: what a program brings to carry the frames of one connection itself.
public final class FrameTransport: SlotOwner, @unchecked Sendable {
    public static var handleKind: HandleKind { .transport }
    public var slot: UInt32 = 0

    private struct Shared {
        var send: Handler<blip_transport_send_fn>?
        var close: Handler<blip_transport_close_fn>?
        var resume: Handler<blip_transport_resume_fn>?
        var inbox: FrameInbox?
        var connection: Connection?
        var isAttached = false
        var isOpened = false
        var hasEnded = false
    }

    private let shared: Locked<Shared>

    public init(_ send: Handler<blip_transport_send_fn>) {
        shared = Locked(Shared(send: send))
    }

    deinit { HandleTable.freeSlot(slot) }

    var closeHandler: Handler<blip_transport_close_fn>? { shared.withLock { $0.close } }
    var resumeHandler: Handler<blip_transport_resume_fn>? { shared.withLock { $0.resume } }

    /// Handlers are let go of behind the lock: that may run code of the program.
    public func setClose(_ handler: Handler<blip_transport_close_fn>) -> blip_status {
        let (old, status) = shared.withLock { shared -> (Handler<blip_transport_close_fn>?, blip_status) in
            guard !shared.hasEnded else { return (nil, BLIP_ERROR_CLOSED) }
            defer { shared.close = handler }
            return (shared.close, BLIP_OK)
        }
        _ = consume old
        return status
    }

    public func setResume(_ handler: Handler<blip_transport_resume_fn>) -> blip_status {
        let (old, status) = shared.withLock { shared -> (Handler<blip_transport_resume_fn>?, blip_status) in
            guard !shared.hasEnded else { return (nil, BLIP_ERROR_CLOSED) }
            defer { shared.resume = handler }
            return (shared.resume, BLIP_OK)
        }
        _ = consume old
        return status
    }

    /// Takes it for one connection; nil if it has or had one.
    func attach(_ handle: OpaquePointer?) -> ProgramCarrier? {
        let (isFree, sender) = shared.withLock { shared -> (Bool, Handler<blip_transport_send_fn>?) in
            defer { shared.isAttached = true }
            return (!shared.isAttached, shared.send)
        }
        guard isFree else { return nil }
        return ProgramCarrier(self, sender, HandleTable.retain(handle, as: FrameTransport.self))
    }

    func didAttach(_ connection: Connection, _ inbox: FrameInbox) {
        shared.withLock {
            $0.connection = connection
            $0.inbox = inbox
        }
    }

    func connectionDidEnd() {
        let old = shared.withLock { shared -> Shared in
            defer {
                shared = Shared()
                shared.isAttached = true
                shared.hasEnded = true
            }
            return shared
        }
        _ = consume old
    }

    // MARK: What the program tells, from any thread

    private var refusal: blip_status {
        shared.withLock { $0.hasEnded ? BLIP_ERROR_CLOSED : BLIP_ERROR_STATE }
    }

    public func didOpen() -> blip_status {
        let (connection, isFirst) = shared.withLock { shared -> (Connection?, Bool) in
            guard let connection = shared.connection, !shared.isOpened else { return (shared.connection, false) }
            shared.isOpened = true
            return (connection, true)
        }
        guard let connection, isFirst else { return refusal }
        connection.loop.post { connection.carrierDidOpen() }
        return BLIP_OK
    }

    public func didReceive(_ frame: UnsafeRawBufferPointer) -> blip_status {
        guard let inbox = shared.withLock({ $0.isOpened ? $0.inbox : nil }) else { return refusal }
        guard frame.count <= Int(UInt32.max) else { return BLIP_ERROR_LIMIT }
        return inbox.push(frame)
    }

    public func didDrain() -> blip_status {
        guard let connection = shared.withLock({ $0.connection }) else { return refusal }
        connection.loop.post { connection.carrier?.didDrain() }
        return BLIP_OK
    }

    public func didClose(_ status: blip_status) -> blip_status {
        guard status <= 0 else { return BLIP_ERROR_ARGUMENT }
        guard let inbox = shared.withLock({ $0.inbox }) else { return refusal }
        return inbox.push(.ended(status))
    }
}
