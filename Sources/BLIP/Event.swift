import BLIPProtocol
import CBLIP
import Synchronization
import Transport

/// Something that the program is told: run as a callback, at once or through a queue, or handed out as a `blip_event`.
public final class Event: SlotOwner, @unchecked Sendable {
    enum Action {
        case request(RequestHandler)
        case response(ResponseCompletion)
        case data(Handler<blip_data_fn>?)
        case sent(Handler<blip_sent_fn>)
        case progress(Handler<blip_progress_fn>)
        case state(Handler<blip_state_fn>)
        case open(Handler<blip_open_fn>)
        case close(Handler<blip_close_fn>)
        case pong(Handler<blip_pong_fn>)
        case backlog(Handler<blip_backlog_fn>)
        case accept(Handler<blip_accept_fn>)
        case stopped(Handler<blip_stopped_fn>)
        case challenge(Handler<blip_challenge_fn>, Challenge)
        case bye(Handler<blip_bye_fn>)
        /// With the peer's "Bye": what is said to it says nothing about the next one.
        case closeRequest(Handler<blip_close_request_fn>, BLIPMessage)
        /// With a reference to the connection's handle, which may end before the event is taken.
        case observed(Attachment, OpaquePointer?)
        case reconnecting(Handler<blip_reconnector_state_fn>, Reconnector)
        case trust(Handler<blip_trust_fn>, TrustQuestion)
        case log(Handler<blip_log_fn>, LogLine)
    }

    public static var handleKind: HandleKind { .event }
    public var slot: UInt32 = 0

    let action: Action
    public let status: blip_status
    public let value: Int64
    let connection: Connection?
    let listener: Listener?
    let message: BLIPMessage?
    let request: BLIPMessage?
    private let isSettled = Atomic<Bool>(false)
    /// A request, or a client that wants in, has reached the program.
    private let isDelivered = Atomic<Bool>(false)
    /// Handles lent to the program with a pulled event.
    private struct Lent {
        var message: OpaquePointer?
        var request: OpaquePointer?
        var trust: OpaquePointer?
    }

    private let lent = Locked(Lent())
    // Held from the queue on: other threads may take what is behind, up to the last event, and be done with it first.
    private var heldConnection: OpaquePointer?
    private var heldListener: OpaquePointer?
    private var heldReconnector: OpaquePointer?

    init(
        _ action: Action, status: blip_status = BLIP_OK, value: Int64 = 0, connection: Connection? = nil,
        listener: Listener? = nil, message: BLIPMessage? = nil, request: BLIPMessage? = nil
    ) {
        self.action = action
        self.status = status
        self.value = value
        self.connection = connection
        self.listener = listener
        self.message = message
        self.request = request
    }

    /// What an observer with a queue is told.
    convenience init(
        _ attachment: Attachment, _ what: UInt32, _ connection: Connection, _ message: BLIPMessage?,
        _ status: blip_status
    ) {
        // Another queue may tell of the message at the same time.
        if let message { HandleTable.prepare(message) }
        self.init(
            .observed(attachment, connection.holdHandle()), status: status, value: Int64(what), connection: connection,
            message: message)
    }

    /// Nobody wants to know any more.
    var isRevoked: Bool {
        if case .observed(let attachment, _) = action { return attachment.isRemoved }
        return false
    }

    deinit {
        settle()
        letGo()
        HandleTable.freeSlot(slot)
    }

    /// It is taken out of its queue, under the queue's lock.
    func willLeaveQueue() {
        heldConnection = HandleTable.retainOwn(connection?.handle, as: Connection.self)
        heldListener = HandleTable.retainOwn(listener?.handle, as: Listener.self)
        if case .reconnecting(_, let reconnector) = action {
            heldReconnector = HandleTable.retainOwn(reconnector.handle, as: Reconnector.self)
        }
    }

    private func letGo() {
        let (connection, listener, reconnector) = (heldConnection, heldListener, heldReconnector)
        heldConnection = nil
        heldListener = nil
        heldReconnector = nil
        if connection != nil { HandleTable.releaseOwn(connection, as: Connection.self) }
        if listener != nil { HandleTable.releaseOwn(listener, as: Listener.self) }
        if reconnector != nil { HandleTable.releaseOwn(reconnector, as: Reconnector.self) }
    }

    // MARK: As a callback

    func run() {
        switch action {
        case .request(let handler):
            isDelivered.store(true, ordering: .relaxed)
            if let connection, let message { connection.call(handler, message) }
        case .response(let completion):
            lend(request) { request in
                lend(message) { completion.function?(connection?.handle, request, $0, status, completion.context) }
            }
        case .data(let handler):
            if let handler, let message { connection?.offer(message, to: handler) }
        case .sent(let handler):
            lend(message) { handler.function?($0, status, handler.context) }
        case .progress(let handler):
            lend(message) { handler.function?($0, UInt64(bitPattern: value), handler.context) }
        case .state(let handler):
            handler.function?(connection?.handle, Int32(truncatingIfNeeded: value), handler.context)
        case .open(let handler): handler.function?(connection?.handle, handler.context)
        case .close(let handler): handler.function?(connection?.handle, status, handler.context)
        case .pong(let handler): handler.function?(connection?.handle, status, value, handler.context)
        case .backlog(let handler):
            handler.function?(connection?.handle, status, UInt64(max(0, value)), handler.context)
        case .accept(let handler):
            isDelivered.store(true, ordering: .relaxed)
            handler.function?(listener?.handle, connection?.handle, handler.context)
        case .stopped(let handler): handler.function?(listener?.handle, status, handler.context)
        case .challenge(let handler, let challenge):
            handler.function?(connection?.handle, challenge.handle, handler.context)
        case .bye(let handler): handler.function?(connection?.handle, status, value != 0, handler.context)
        case .closeRequest(let handler, let question):
            let accepts = handler.function?(connection?.handle, handler.context) ?? true
            _ = connection?.answerCloseRequest(accepts, of: question)
        case .observed(let attachment, let handle):
            attachment.call(handle, UInt32(truncatingIfNeeded: value), message, status)
        case .reconnecting(let handler, let reconnector):
            handler.function?(
                reconnector.handle, Int32(truncatingIfNeeded: value), status, handler.context)
        case .trust(let handler, let question):
            if let handle = HandleTable.create(question) {
                handler.function?(connection?.handle, handle, handler.context)
                HandleTable.release(handle, as: TrustQuestion.self)
            }
        case .log(let handler, let line):
            handler.function?(
                Int32(truncatingIfNeeded: value), line.domainSlice, line.textSlice, handler.context)
        }
        settle()
        letGo()
    }

    /// What has to happen once the program has seen the event, or has let it go.
    private func settle() {
        guard !isSettled.exchange(true, ordering: .acquiringAndReleasing) else { return }
        switch action {
        case .request:
            guard !isDelivered.load(ordering: .relaxed), let message, message.wantsReply else { break }
            _ = connection?.respond(to: message, domain: "BLIP", code: 501, text: "The request's handler is gone")
        case .response(let completion): completion.release?(completion.context)
        case .accept:
            // Whom nobody has seen nobody has let in.
            if !isDelivered.load(ordering: .relaxed) { _ = connection?.close(code: 1001, reason: []) }
            connection?.acceptDidSettle()
        case .open: connection?.openDidSettle()
        case .close: connection?.closeDidSettle()
        case .stopped: listener?.stoppedDidSettle()
        // What was never seen, or let go of, is not trusted.
        case .trust(_, let question): if question.slot == 0 { _ = question.answer(false) }
        case .challenge(_, let challenge): challenge.eventDidSettle()
        // Unless it was answered.
        case .closeRequest(_, let question): _ = connection?.answerCloseRequest(true, of: question)
        case .observed(_, let handle): HandleTable.releaseOwn(handle, as: Connection.self)
        case .reconnecting(_, let reconnector):
            if value == Int64(BLIP_RECONNECTOR_STOPPED) { reconnector.stoppedDidSettle() }
        default: break
        }
    }

    // MARK: As an event of blip.h

    public var kind: Int32 {
        switch action {
        case .request: BLIP_EVENT_REQUEST
        case .response: BLIP_EVENT_RESPONSE
        case .data: BLIP_EVENT_DATA
        case .sent: BLIP_EVENT_SENT
        case .progress: BLIP_EVENT_SEND_PROGRESS
        case .state: BLIP_EVENT_STATE
        case .open: BLIP_EVENT_OPEN
        case .close: BLIP_EVENT_CLOSE
        case .pong: BLIP_EVENT_PONG
        case .backlog: BLIP_EVENT_BACKLOG
        case .accept: BLIP_EVENT_ACCEPT
        case .stopped: BLIP_EVENT_LISTENER_STOPPED
        case .challenge: BLIP_EVENT_CHALLENGE
        case .bye: BLIP_EVENT_BYE
        case .closeRequest: BLIP_EVENT_CLOSE_REQUEST
        case .observed: BLIP_EVENT_OBSERVED
        case .reconnecting: BLIP_EVENT_RECONNECTOR
        case .trust: BLIP_EVENT_TRUST
        case .log: BLIP_EVENT_LOG
        }
    }

    public var context: UnsafeMutableRawPointer? {
        switch action {
        case .request(let handler): handler.context
        case .response(let completion): completion.context
        case .data(let handler): handler?.context
        case .sent(let handler): handler.context
        case .progress(let handler): handler.context
        case .state(let handler): handler.context
        case .open(let handler): handler.context
        case .close(let handler): handler.context
        case .pong(let handler): handler.context
        case .backlog(let handler): handler.context
        case .accept(let handler): handler.context
        case .stopped(let handler): handler.context
        case .challenge(let handler, _): handler.context
        case .bye(let handler): handler.context
        case .closeRequest(let handler, _): handler.context
        case .observed(let attachment, _): attachment.module.observer?.context
        case .reconnecting(let handler, _): handler.context
        case .trust(let handler, _): handler.context
        case .log(let handler, _): handler.context
        }
    }

    public var connectionHandle: OpaquePointer? {
        if case .observed(_, let handle) = action { return handle }
        return connection?.handle
    }

    public var listenerHandle: OpaquePointer? { listener?.handle }

    public var challengeHandle: OpaquePointer? {
        if case .challenge(_, let challenge) = action { challenge.handle } else { nil }
    }

    /// The domain and the text of a line of the log.
    public var logLine: (domain: blip_slice, text: blip_slice)? {
        if case .log(_, let line) = action { (line.domainSlice, line.textSlice) } else { nil }
    }

    public var messageHandle: OpaquePointer? {
        lent.withLock { lent in
            if lent.message == nil, let message { lent.message = HandleTable.create(message) }
            return lent.message
        }
    }

    public var requestHandle: OpaquePointer? {
        lent.withLock { lent in
            if lent.request == nil, let request { lent.request = HandleTable.create(request) }
            return lent.request
        }
    }

    public var trustHandle: OpaquePointer? {
        guard case .trust(_, let question) = action else { return nil }
        return lent.withLock { lent in
            if lent.trust == nil { lent.trust = HandleTable.create(question) }
            return lent.trust
        }
    }

    /// It was handed out by `blip_queue_next`: a request is the program's to answer, whenever it likes.
    func wasPulled() {
        switch action {
        case .request:
            isDelivered.store(true, ordering: .relaxed)
            if let message {
                _ = message.reply.compareExchange(
                    expected: ReplyState.open, desired: ReplyState.deferred, ordering: .relaxed)
            }
            _ = messageHandle
        case .accept: isDelivered.store(true, ordering: .relaxed)
        case .data:
            if let message { message.existingExtras?.incoming?.announcementDidEnd() }
        default: break
        }
    }

    public func handleDidEnd() {
        let handles = lent.withLock { lent -> Lent in
            defer { lent = Lent() }
            return lent
        }
        HandleTable.release(handles.message, as: BLIPMessage.self)
        HandleTable.release(handles.request, as: BLIPMessage.self)
        HandleTable.release(handles.trust, as: TrustQuestion.self)
        settle()
        letGo()
    }
}
