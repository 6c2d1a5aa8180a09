import BLIPProtocol
import CBLIP
import Synchronization
import Transport
import WebSocketProtocol

extension Connection {
    /// For `url` as text; the failure says what is wrong with it.
    public convenience init(runtime: Runtime, url: String, options: ConnectionOptions?) throws(Failure) {
        switch WebSocketURL.parse(url) {
        case .success(let parsed): try self.init(runtime: runtime, url: parsed, options: options)
        case .failure(let failure): throw Failure(BLIP_ERROR_URL, failure.description)
        }
    }

    /// Over a socket that is connected already; it is taken over unless this fails.
    public convenience init(
        runtime: Runtime, descriptor: Int32, url: String, options: ConnectionOptions?
    ) throws(Failure) {
        guard AdoptedDescriptor.isConnected(descriptor) else {
            throw Failure(BLIP_ERROR_ARGUMENT, "Descriptor \(descriptor) is no stream socket that is connected.")
        }
        let adopted = AdoptedDescriptor(descriptor)
        switch WebSocketURL.parse(url) {
        case .success(let parsed):
            do throws(Failure) {
                try self.init(runtime: runtime, url: parsed, options: options, adopted: adopted)
            } catch {
                _ = adopted.take()
                throw error
            }
        case .failure(let failure):
            _ = adopted.take()
            throw Failure(BLIP_ERROR_URL, failure.description)
        }
    }

    /// What is wrong with a URL; nil if it can be connected to.
    public static func failure(of url: String) -> Failure? {
        switch WebSocketURL.parse(url) {
        case .success: nil
        case .failure(let failure): Failure(BLIP_ERROR_URL, failure.description)
        }
    }

    /// A reference for the program: to the library's own handle.
    public func lendHandle() -> OpaquePointer? { HandleTable.retain(handle, as: Connection.self) }

    /// A reference to the own handle that is not the program's. Loop thread, before the close callback.
    func holdHandle() -> OpaquePointer? { HandleTable.expose(self, slot: slot, kind: .connection) }

    /// Changes whom the server's certificate must be for, as long as TLS has not begun.
    public func setServerName(_ name: String) -> blip_status {
        guard !isIncoming else { return BLIP_ERROR_STATE }
        let state = state
        guard state < BLIP_STATE_OPEN else { return state == BLIP_STATE_OPEN ? BLIP_ERROR_STATE : BLIP_ERROR_CLOSED }
        return setCallbacks { $0.serverName = name.isEmpty ? nil : Text(name) }
    }

    /// Runs a function of the program on the loop's thread, later; it is only let go of if the connection ends first.
    public func perform(_ handler: Handler<blip_perform_fn>) -> blip_status {
        guard handler.function != nil else { return BLIP_ERROR_ARGUMENT }
        guard state != BLIP_STATE_CLOSED else { return BLIP_ERROR_CLOSED }
        let isPosted = loop.post { [self] in
            if phase != .closed { handler.function?(handle, handler.context) }
        }
        return isPosted ? BLIP_OK : BLIP_ERROR_CLOSED
    }

    /// Why it has ended, if something went wrong.
    var finalFailure: Failure? {
        guard let record = withInfo({ $0.error?.record }) else { return nil }
        return Failure(record.status, domain: record.domain.string, code: record.code, record.message.string)
    }

    /// Whether a request would be sent now, or once the connection is open. Loop thread.
    func takesRequests(orWillOpen: Bool) -> Bool {
        switch phase {
        case .open: !isDraining
        case .idle, .connecting, .securing, .upgrading: orWillOpen && state < BLIP_STATE_CLOSING
        case .waitingForAccept, .closing, .closed: false
        }
    }

    /// Only one reference of the program is left.
    var isHeldOnce: Bool { programReferenceCount == 1 }

    // MARK: What may be asked, from any thread

    public var error: OpaquePointer? { withInfo { $0.error?.handle } }
    public var closeCode: Int32 { withInfo { $0.closeCode } }
    public var protocolVersion: Int32 { withInfo { $0.version } }
    public var isAccepted: Bool { isIncoming }
    public var isSecure: Bool { withInfo { $0.isSecure } }
    public var subprotocolText: Text? { withInfo { $0.subprotocol } }
    public var localAddressText: Text? { address(\.localAddress) { $0.localAddress }?.text }
    public var remoteAddressText: Text? { address(\.remoteAddress) { $0.remoteAddress }?.text }
    public var localSystemAddress: Text? { address(\.localAddress) { $0.localAddress }?.system }
    public var remoteSystemAddress: Text? { address(\.remoteAddress) { $0.remoteAddress }?.system }
    /// Of the peer's address; nil while there is none.
    private var addressFamily: SocketAddress.Family? { withInfo { $0.stream }?.remoteAddress.family }
    public var isIPv4: Bool { addressFamily == .ipv4 }
    public var isIPv6: Bool { addressFamily == .ipv6 }
    public var hasQueue: Bool { configuration.queue != nil }

    /// An address as text, made on the first question.
    private func address(
        _ place: WritableKeyPath<ConnectionInfo, StreamAddress?>, _ get: (Transport.Stream) -> SocketAddress
    ) -> StreamAddress? {
        withInfo { info in
            if let address = info[keyPath: place] { return address }
            guard let stream = info.stream else { return nil }
            let address = StreamAddress(get(stream))
            info[keyPath: place] = address
            return address
        }
    }

    public var tlsVersionText: Text? { withInfo { $0.tls }?.version }
    public var tlsCipherText: Text? { withInfo { $0.tls }?.cipher }
    public var peerCertificate: Text? { withInfo { $0.tls }?.peerCertificate }
    public var tlsProtocolText: Text? { withInfo { $0.tls }?.applicationProtocol }
    public var isTLSResumed: Bool { withInfo { $0.tls }?.isResumed ?? false }

    /// Calls the function with the socket's descriptor, on the loop: nothing is sent or received meanwhile.
    public func withDescriptor(_ handler: Handler<blip_fd_fn>) -> blip_status {
        let work: @Sendable () -> Void = { [self] in
            handler.function?(handle, stream?.socketDescriptor ?? -1, handler.context)
        }
        if loop.isCurrent, !isFilling {
            work()
            return BLIP_OK
        }
        return loop.post(work) ? BLIP_OK : BLIP_ERROR_CLOSED
    }
    public var requestPath: Text? { withInfo { $0.path } }
    public var backlogBytes: UInt64 { UInt64(max(0, backlog.load(ordering: .relaxed))) }

    public var urlText: Text? {
        guard let url else { return nil }
        return withInfo { info in
            if let text = info.url { return text }
            let text = Text(url.description)
            info.url = text
            return text
        }
    }

    /// A header of the peer's HTTP head.
    public func header(_ name: String) -> UnsafeRawBufferPointer? {
        withInfo { $0.head }?.value(of: name)
    }

    public var isActive: Bool {
        let counters = readCounters()
        return counters.requestsPending &+ counters.requestsUnanswered &+ counters.messagesQueued > 0
            || backlogBytes > 0
    }

    public func setUserData(_ data: Handler<Never>) {
        let old = withInfo { info -> Handler<Never>? in
            defer { info.userData = data }
            return info.userData
        }
        _ = consume old
    }

    public var userData: UnsafeMutableRawPointer? { withInfo { $0.userData?.context } }

    // MARK: Messages

    /// A pulled body can go on.
    func resume(_ message: BLIPMessage) {
        loop.post { [self] in
            guard phase == .open, let engine = session?.engine else { return }
            engine.resume(message)
            requestOutput()
        }
    }

    /// Nobody will complete a pushed body any more: it fails now, also while the peer holds the message up.
    func bodyWasAbandoned(_ message: BLIPMessage) {
        loop.post { [self] in
            guard phase == .open, let session else { return }
            session.engine.resume(message)
            if session.engine.isPaused(message) { bodyDidFail(session) }
            stream?.requestOutput()
        }
    }

    /// Somebody waits for a message to be sent; if that is decided already, they are told.
    func noteWaiter(of message: BLIPMessage) {
        perform {
            let status = message.sentStatus.load(ordering: .acquiring)
            guard status != BLIPMessage.unknown else { return }
            let waiters = message.extras.shared.withLock { shared -> [Waiter] in
                defer { shared.sentWaiters = [] }
                return shared.sentWaiters
            }
            for waiter in waiters { waiter.signal(status) }
        }
    }
}

extension Runtime {
    /// Tells the log why an object could not be made.
    public func report(_ failure: Failure, _ domain: StaticString) { log(BLIP_LOG_ERROR, domain, failure.text) }

    /// The calling thread is a loop's: it must not wait.
    public static var isOnLoopThread: Bool { EventLoop.current != nil }
}
