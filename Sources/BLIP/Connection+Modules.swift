import BLIPProtocol
import CBLIP
import Synchronization
import Transport

extension Connection {
    // MARK: Registering, from any thread

    /// Registers a module; of several, those of the runtime come first, then the listener's, then the connection's.
    public func add(_ module: Module) -> blip_status {
        var isNew = true
        let status = replaceSettings { settings in
            isNew = !settings.attachments.contains { $0.module === module }
            return isNew ? settings.adding([Attachment(module, .connection)]) : settings
        }
        useSettings()
        return isNew ? status : BLIP_ERROR_STATE
    }

    /// Takes a module off this connection, also one that its listener or runtime has registered.
    public func remove(_ module: Module) -> blip_status {
        defer { useSettings() }
        return replaceSettings { settings in
            guard let attachment = settings.attachments.first(where: { $0.module === module }) else { return nil }
            if attachment.level == .connection { attachment.remove() }
            return settings.removing(attachment)
        }
    }

    /// What was changed on the loop's thread holds at once.
    private func useSettings() {
        if loop.isCurrent, !isFilling { _ = settings }
    }

    /// The program's modules, in their order.
    public var modules: [Module] {
        (withInfo { $0.settings }?.attachments ?? []).filter { $0.level != .library }.map(\.module)
    }

    /// Takes part in what others have registered for many connections. Loop thread.
    func attach(_ attachments: [Attachment]) {
        _ = replaceSettings { settings in
            let new = attachments.filter { new in
                !new.isRemoved && !settings.attachments.contains { $0.module === new.module }
            }
            return new.isEmpty ? settings : settings.adding(new)
        }
        useSettings()
    }

    func detach(_ attachment: Attachment) {
        _ = replaceSettings { $0.removing(attachment) }
        useSettings()
    }

    // MARK: Telling observers, on the loop

    /// Tells the observers of something.
    @inline(__always)
    func tell(_ what: UInt32, _ message: BLIPMessage? = nil, _ status: blip_status = BLIP_OK) {
        guard let hooks, hooks.observed & what != 0 else { return }
        hooks.tell(self, what, message, status)
    }

    /// Puts an event into a queue that is not the connection's own.
    func deliver(_ event: Event, to queue: EventQueue) {
        if queue.push(event, pausing: isReadingPaused ? nil : self) { pauseForQueue() }
    }

    /// An observer wants to know when a message was handed to the operating system.
    @inline(__always)
    var isSendingObserved: Bool {
        guard let hooks else { return false }
        return hooks.observed & (BLIP_OBSERVE_SENT | BLIP_OBSERVE_NOT_SENT) != 0
    }

    // MARK: Interceptors, on the loop

    /// Lets the interceptors look at a message that is about to be queued for sending; false if one has dropped it.
    @inline(never)
    func passesOut(_ message: BLIPMessage, _ hooks: Hooks) -> Bool {
        guard hooks.intercepted & BLIP_INTERCEPT_SEND != 0, !message.isFiltered, !isFarewell(message) else {
            return true
        }
        message.isFiltered = true
        return withIntercepted(message) { hooks.pass(self, message, BLIP_INTERCEPT_SEND) }
    }

    /// What the library says to the peer's library is no business of modules.
    func isFarewell(_ message: BLIPMessage) -> Bool {
        message.flags.contains(.meta) || message.request.map(Self.own)?.existingExtras?.isBye == true
    }

    private func withIntercepted(_ message: BLIPMessage, _ body: () -> Bool) -> Bool {
        let outer = context.intercepted
        context.intercepted = Unmanaged.passUnretained(message).toOpaque()
        defer { context.intercepted = outer }
        return body()
    }

    /// An outgoing message was dropped. Its completion follows from the loop, not inside the call that has sent it.
    func drop(outgoing message: BLIPMessage) {
        tell(BLIP_OBSERVE_FILTERED, message, BLIP_ERROR_FILTERED)
        // Where the end of the connection finds it.
        waitingToSend.append(message)
        loop.post { [self] in
            guard let index = waitingToSend.firstIndex(where: { $0 === message }) else { return }
            waitingToSend.remove(at: index)
            reject(message, Self.filtered)
        }
        guard message.kind != .request else { return }
        // The peer still waits for an answer.
        let error = makeError(to: message, domain: "BLIP", code: 403, text: "The response was withheld by a filter")
        error.frozen.store(true, ordering: .relaxed)
        error.isFiltered = true
        withEngine { hand(error, to: $0) }
    }

    /// Lets interceptors and observers see a message that has come, or whose properties have; false if it was dropped.
    @inline(never)
    func passesIn(_ message: BLIPMessage, _ session: Session, isWhole: Bool) -> Bool {
        guard let hooks, !message.isFiltered, !isFarewell(message) else { return true }
        message.isFiltered = true
        if hooks.intercepted & BLIP_INTERCEPT_RECEIVE != 0 {
            // An interceptor may answer the request itself, which counts it down.
            if message.wantsReply { unanswered += 1 }
            if isWhole { message.isWhole.store(true, ordering: .releasing) }
            let passes = withIntercepted(message) { hooks.pass(self, message, BLIP_INTERCEPT_RECEIVE) }
            guard passes else {
                hooks.tell(self, BLIP_OBSERVE_FILTERED, message, BLIP_ERROR_FILTERED)
                drop(incoming: message, session, isWhole: isWhole)
                return false
            }
            if message.wantsReply { unanswered -= 1 }
            if isWhole { message.isWhole.store(false, ordering: .relaxed) }
        }
        let what = message.kind == .request ? BLIP_OBSERVE_REQUEST : BLIP_OBSERVE_RESPONSE
        if hooks.observed & what != 0 {
            if isWhole { message.isWhole.store(true, ordering: .releasing) }
            hooks.tell(self, what, message, BLIP_OK)
        }
        return true
    }

    static var filtered: Failure { Failure(BLIP_ERROR_FILTERED, "An interceptor dropped the message.") }

    private func drop(incoming message: BLIPMessage, _ session: Session, isWhole: Bool) {
        if !isWhole {
            // The rest is thrown away as it comes.
            _ = makeStreamed(message)
            message.extras.isUnwanted = true
            dataDidArrive(message, status: BLIP_OK, session)
        }
        if message.kind == .request {
            guard message.wantsReply, message.reply.load(ordering: .acquiring) == ReplyState.open else { return }
            _ = respond(to: message, domain: "BLIP", code: 403, text: "The request was refused by a filter")
        } else if let request = message.request.map(Self.own) {
            if isWhole {
                message.request = nil
            } else {
                session.engine.abandon(request)
            }
            complete(request, nil, BLIP_ERROR_FILTERED)
        }
    }
}
