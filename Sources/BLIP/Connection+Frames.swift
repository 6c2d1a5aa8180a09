import BLIPProtocol
import CBLIP
import Synchronization
import Transport

/// Connections without a stream: a carrier brings and takes whole frames.
extension Connection {
    // MARK: Making them

    // Each gives a reference to the handle for the program. It is taken before the loop knows the connection, which may
    // have ended a moment later.

    /// Two connections in this process, joined and open.
    public static func pair(
        _ first: Runtime, _ second: Runtime, options: ConnectionOptions?
    ) throws(Failure) -> (OpaquePointer, OpaquePointer) {
        guard let here = first.context(), let there = second.context() else { throw stopped }
        let configurations = (configuration(options, first), configuration(options, second))
        let ends = (PairEnd(), PairEnd())
        let one = Connection(context: here, runtime: first, configuration: configurations.0, carrier: ends.0)
        let two = Connection(context: there, runtime: second, configuration: configurations.1, carrier: ends.1)
        PairEnd.join(ends.0, ends.1, one.loop, two.loop)
        one.openAtOnce()
        two.openAtOnce()
        let handles = (one.lendHandle(), two.lendHandle())
        guard let a = handles.0, let b = handles.1 else {
            one.abandonUnborn(handles.0)
            two.abandonUnborn(handles.1)
            throw exhausted
        }
        guard one.loop.post(ends.0), two.loop.post(ends.1) else {
            one.abandonUnborn(a)
            two.abandonUnborn(b)
            throw stopped
        }
        return (a, b)
    }

    /// A connection to a listener of this process, without a socket between.
    public static func inProcess(
        _ listener: Listener, _ runtime: Runtime, options: ConnectionOptions?
    ) throws(Failure) -> OpaquePointer {
        guard let here = runtime.context() else { throw stopped }
        let configuration = configuration(options, runtime)
        guard let name = configuration.subprotocols.first(where: { listener.configuration.subprotocols.contains($0) }),
            let version = Configuration.version(of: name)
        else {
            throw Failure(BLIP_ERROR_SUBPROTOCOL, "The listener has none of the subprotocols asked for.")
        }
        let ends = (PairEnd(), PairEnd())
        let client = Connection(context: here, runtime: runtime, configuration: configuration, carrier: ends.0)
        guard let accepted = listener.accept(ends.1) else {
            client.abandonUnborn()
            throw Failure(BLIP_ERROR_STATE, "The listener does not listen, or has all the connections it may have.")
        }
        PairEnd.join(ends.0, ends.1, client.loop, accepted.loop)
        for connection in [client, accepted] {
            connection.name(name, version)
            connection.publishedState.store(BLIP_STATE_CONNECTING, ordering: .releasing)
        }
        client.phase = .connecting
        accepted.phase = .waitingForAccept
        guard let handle = client.lendHandle() else {
            client.abandonUnborn()
            accepted.abandonUnborn()
            throw exhausted
        }
        let connects = client.loop.post {
            client.begin()
            if client.phase == .connecting { client.armTimer(after: configuration.connectTimeout) }
        }
        guard connects, accepted.loop.post({ accepted.askToAccept() }) else {
            client.abandonUnborn(handle)
            accepted.abandonUnborn()
            throw stopped
        }
        return handle
    }

    private func askToAccept() {
        begin()
        guard phase == .waitingForAccept, let listener else { return }
        armTimer(after: configuration.connectTimeout)
        if let handler = listener.acceptHandler {
            present(nil, handler, listener)
        } else {
            continueAfterAccept()
        }
    }

    /// A connection over a transport of the program's.
    public static func over(
        _ transport: FrameTransport, _ handle: OpaquePointer?, runtime: Runtime, subprotocol: String,
        options: ConnectionOptions?
    ) throws(Failure) -> OpaquePointer {
        let known = subprotocol == streamProtocol ? ProtocolVersion.v1 : Configuration.version(of: subprotocol)
        guard let version = known else {
            throw Failure(BLIP_ERROR_ARGUMENT, "The protocol \(subprotocol) is not known: BLIP_3, BLIP or BLIP_1.")
        }
        guard let context = runtime.context() else { throw stopped }
        let configuration = configuration(options, runtime)
        guard let carrier = transport.attach(handle) else {
            throw Failure(BLIP_ERROR_STATE, "The transport has or had a connection already.")
        }
        let connection = Connection(
            context: context, runtime: runtime, configuration: configuration, carrier: carrier)
        let inbox = FrameInbox(carrier, context.loop)
        carrier.inbox = inbox
        connection.name(subprotocol, version)
        connection.phase = .connecting
        connection.publishedState.store(BLIP_STATE_CONNECTING, ordering: .releasing)
        guard let own = connection.lendHandle() else {
            connection.abandonUnborn()
            throw exhausted
        }
        transport.didAttach(connection, inbox)
        guard
            context.loop.post({
                connection.begin()
                guard connection.phase == .connecting else { return }
                connection.armTimer(after: configuration.connectTimeout)
            })
        else {
            connection.abandonUnborn(own)
            throw stopped
        }
        return own
    }

    private static var stopped: Failure { Failure(BLIP_ERROR_STOPPED, "The runtime was stopped.") }
    private static var exhausted: Failure { Failure(BLIP_ERROR_RESOURCES, "There is no memory for a handle.") }

    private static func configuration(_ options: ConnectionOptions?, _ runtime: Runtime) -> Configuration {
        options.map { Configuration($0, queue: runtime.queue, tls: nil) } ?? runtime.defaultConfiguration
    }

    /// Open from the start: both ends are here. Before others know the connection.
    private func openAtOnce() {
        let subprotocol = configuration.subprotocols.first ?? "BLIP_3"
        name(subprotocol, Configuration.version(of: subprotocol) ?? .v3)
        phase = .open
        withInfo { $0.version = Int32(version.rawValue) }
        countOpening()
        publishedState.store(BLIP_STATE_OPEN, ordering: .releasing)
    }

    private func name(_ subprotocol: String, _ version: ProtocolVersion) {
        self.version = version
        let text = configuration.text(of: subprotocol)
        withInfo { $0.subprotocol = text }
    }

    /// It could not be begun; nobody knows it. `lent` would have been the program's reference.
    private func abandonUnborn(_ lent: OpaquePointer? = nil) {
        let carrier = carrier
        self.carrier = nil
        carrier?.end()
        phase = .closed
        publishedState.store(BLIP_STATE_CLOSED, ordering: .releasing)
        endCounters(wasIdle: false)
        endSettings()
        closeDidSettle()
        listener?.connectionDidEnd()
        runtimeHold.objectDidEnd()
        HandleTable.release(lent, as: Connection.self)
    }

    // MARK: On the loop

    /// One of a pair comes to its loop for the first time.
    func beginPaired() {
        guard indexInContext < 0, phase == .open else { return }
        begin()
        if phase == .open { tell(BLIP_OBSERVE_OPEN) }
    }

    func carrierDidOpen() {
        guard phase == .connecting || phase == .waitingForAccept, let subprotocol = withInfo({ $0.subprotocol })?.string
        else { return }
        open(subprotocol: subprotocol, version: version)
        (carrier as? PairEnd)?.openOther()
        // What came before.
        carrier?.resumeReading()
    }

    /// Cuts frames and gives them away, until there are none or the carrier takes no more.
    func sendFrames() {
        guard phase == .open, let session, let carrier, !carrier.isBlocked, let base = loop.writeBuffer.baseAddress,
            let link = session.link as? FrameLink
        else { return }
        guard didTake(carrier.sendHeld(), carrier) else { return }
        for _ in 0..<64 {
            let count = cutFrame(session)
            guard count > 0, phase == .open else { break }
            link.bytesSent &+= UInt64(count)
            let frame = UnsafeMutableRawBufferPointer(start: base, count: count)
            let outcome = carrier.send(frame)
            if case .full = outcome { carrier.held = [UInt8](frame) }
            guard didTake(outcome, carrier), phase == .open else { break }
        }
        guard phase == .open else { return }
        if session.engine.hasOutput { carrier.requestOutput(loop) }
        if carrier.held == nil { didFlush(session) }
        guard phase == .open else { return }
        publishCounters(session)
        context.reclaim()
        if isDraining { checkDrained() }
    }

    private func didTake(_ outcome: FrameCarrier.Outcome, _ carrier: FrameCarrier) -> Bool {
        switch outcome {
        case .taken: return true
        case .full: carrier.isBlocked = true
        case .failed(let status): carrierDidEnd(.ended(status))
        }
        return false
    }

    /// Cuts the next frame into the loop's buffer: its size.
    private func cutFrame(_ session: Session) -> Int {
        isFilling = true
        defer { isFilling = false }
        guard let frame = nextFrame(of: session, into: loop.writeBuffer) else { return 0 }
        if let message = frame.message.map(Self.own), frameDidLeave(message, isLast: frame.isLast, session) {
            context.recycle(message)
        }
        return frame.count
    }

    /// Takes one frame, which may be overwritten.
    func receiveFrame(_ frame: UnsafeMutableRawBufferPointer) {
        guard phase == .open, let session = openSession(), !session.isBroken else { return }
        if let link = session.link as? FrameLink { link.bytesReceived &+= UInt64(frame.count) }
        if isTracing { trace(UnsafeRawBufferPointer(frame), isOutgoing: false) }
        limitMemory(session)
        handle(session.engine.receive(frame), session)
        guard phase == .open else { return }
        publishCounters(session)
        context.reclaim()
    }

    func publishCounters(_ session: Session) {
        if let link = session.link as? FrameLink {
            publishCounters(session, sent: link.bytesSent, received: link.bytesReceived)
        } else if let stream {
            publishCounters(session, stream)
        }
    }

    /// The other side of the carrier has ended.
    func carrierDidEnd(_ end: FrameInbox.End) {
        guard phase != .closed else { return }
        switch end {
        case .closed(let code, let reason):
            peerDidClose(code, String(decoding: reason, as: UTF8.self))
            finish(failure)
        case .ended(let status):
            (carrier as? ProgramCarrier)?.programDidEnd()
            guard phase == .open || phase == .closing else {
                let isPair = carrier is PairEnd
                return finish(
                    Failure(
                        isPair ? BLIP_ERROR_REFUSED : status == BLIP_OK ? BLIP_ERROR_CONNECTION_LOST : status,
                        isPair ? "The listener has refused the connection." : "The transport ended before it opened."))
            }
            guard status != BLIP_OK else {
                if phase == .open {
                    startClosing(
                        pending: Failure(BLIP_ERROR_PEER_CLOSED, "The transport was closed by the peer."), final: nil)
                }
                return finish(phase == .closing ? failure : nil)
            }
            finish(
                Failure(
                    status,
                    carrier is PairEnd ? "The other end of the pair is gone." : "The program's transport failed."
                ))
        }
    }

    /// This side ends; the connection is in phase `closing`.
    func endCarrier(code: UInt16, reason: [UInt8]) {
        withInfo { if $0.closeCode == 0 { $0.closeCode = Int32(code) } }
        carrier?.close(code: code, reason: reason)
        finish(failure)
    }

    // MARK: Sessions

    /// Goes on where the session before has rested.
    func wakeSession(_ session: Session, _ link: FrameLink) {
        context.frameSessions.add(self, link, loop)
        guard let rest = session.record.rest else { return }
        session.record.rest = nil
        session.engine.goOn(from: rest, session.record.current.engine)
        link.bytesSent = session.record.current.bytesSent
        link.bytesReceived = session.record.current.bytesReceived
    }

    /// Gives up the session if nothing is under way. Where no session is in use.
    func restSession() -> Bool {
        guard phase == .open, let session, let link = session.link as? FrameLink, !session.isBroken,
            session.flushing.isEmpty, farewell == nil, !isDraining, carrier?.held == nil,
            let rest = session.engine.rest()
        else { return false }
        publishCounters(session)
        session.record.rest = rest
        link.place = -1
        self.session = nil
        return true
    }

    // MARK: Reading

    /// Unless the rest of a frame comes first: behind it reading goes on.
    func resumeReading() {
        guard !isFrameSuspended else { return }
        if let stream { stream.resumeReading() } else { carrier?.resumeReading() }
    }
}
