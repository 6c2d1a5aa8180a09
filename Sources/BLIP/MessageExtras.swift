import BLIPProtocol
import CBLIP
import Synchronization
import Transport

/// What few messages need: callbacks beside the response, a deadline, a streamed body, texts made on demand.
final class MessageExtras: @unchecked Sendable {
    struct Shared {
        var error: OwnedError?
        var descriptions: [Text] = []
        var userData: Handler<Never>?
        var sentWaiters: [Waiter] = []
        /// Of a carried request: the connection that it is on at the moment, for other threads than the loop's.
        var place: Connection?
    }

    let shared = Locked(Shared())

    // Set by the program before sending, then the loop's.
    var sent: Handler<blip_sent_fn>?
    var progress: Handler<blip_progress_fn>?
    var isResponseStreamed = false
    var pushed: PushedSource?
    /// Data events are wanted although no function was given.
    var wantsDataEvents = false
    /// Nobody can read the streamed body any more.
    var isUnwanted = false
    var timeout: Int64 = -1
    /// The library's own "Bye".
    var isBye = false
    /// Who finds a connection for the request, and another one if that ends before it was begun.
    var carrier: Reconnector?

    // The loop's.
    var data: Handler<blip_data_fn>?
    var timer: RequestTimer?
    var heldResponse: BLIPMessage?
    var requestWaiter: Waiter?
    var reportedProgress: UInt64 = 0

    let incomingPointer = Atomic<UnsafeRawPointer?>(nil)

    deinit {
        shared.withLock { $0.error?.end() }
        if let pointer = incomingPointer.load(ordering: .relaxed) {
            Unmanaged<IncomingBody>.fromOpaque(pointer).release()
        }
    }

    /// The streamed body, once the message is streamed.
    var incoming: IncomingBody? {
        guard let pointer = incomingPointer.load(ordering: .acquiring) else { return nil }
        return Unmanaged<IncomingBody>.fromOpaque(pointer).takeUnretainedValue()
    }

    func makeIncoming() -> IncomingBody {
        if let incoming { return incoming }
        let body = IncomingBody()
        incomingPointer.store(UnsafeRawPointer(Unmanaged.passRetained(body).toOpaque()), ordering: .releasing)
        return body
    }
}
