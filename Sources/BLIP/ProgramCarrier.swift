import BLIPProtocol
import CBLIP
import Transport

/// The program's own transport, as its connection sees it.
final class ProgramCarrier: FrameCarrier, @unchecked Sendable {
    private let transport: FrameTransport
    private var sender: Handler<blip_transport_send_fn>?
    /// A reference of the library's, so that callbacks have a good handle.
    private var handle: OpaquePointer?
    /// The program has said that its side has ended, or was told that this one has.
    private var isOver = false

    init(_ transport: FrameTransport, _ sender: Handler<blip_transport_send_fn>?, _ handle: OpaquePointer?) {
        self.transport = transport
        self.sender = sender
        self.handle = handle
    }

    override func send(_ frame: UnsafeMutableRawBufferPointer) -> Outcome {
        guard let sender, let function = sender.function else { return .taken }
        let status = function(handle, blip_slice(UnsafeRawBufferPointer(frame)), sender.context)
        switch status {
        case BLIP_AGAIN: return .full
        case ..<0: return .failed(status)
        default: return .taken
        }
    }

    override func makeRoomKnown() {
        guard let resume = transport.resumeHandler else { return }
        resume.function?(handle, resume.context)
    }

    override func close(code: UInt16, reason: [UInt8]) {
        // What was held is offered once more; nobody waits for it.
        _ = sendHeld()
        tellClose(code, reason)
    }

    /// The program has ended its side.
    func programDidEnd() { isOver = true }

    private func tellClose(_ code: UInt16, _ reason: [UInt8]) {
        guard !isOver else { return }
        isOver = true
        guard let close = transport.closeHandler else { return }
        reason.withUnsafeBytes { close.function?(handle, code, blip_slice($0), close.context) }
    }

    override func end() {
        super.end()
        // Whatever ended the connection: the program is told.
        tellClose(1006, [])
        sender = nil
        let old = handle
        handle = nil
        transport.connectionDidEnd()
        HandleTable.releaseOwn(old, as: FrameTransport.self)
    }
}
