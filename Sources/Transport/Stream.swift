import CSystem
import Glibc

/// A connected byte stream, TCP or Unix-domain, plain or with TLS; confined to its loop's thread.
///
/// Overview: bytes that come are given to the delegate, who says how many it has consumed; the delegate is asked for
/// bytes when there is something to send. The loop keeps an open stream alive, and the stream its delegate, until
/// `close` or `didEnd`.
///
/// Function: receiving takes one system call for each time the socket is readable, into a buffer of the loop. Sending
/// is tried at the end of the turn, directly; the socket is watched for writing only while it takes no more. After
/// about 1 MiB in one turn other streams come first.
///
/// Implementation: delegates are called from the loop's top level only, never from inside a call to a stream, so that
/// the loop's buffers are never in use twice. A stream that is idle owns no buffer.
public final class Stream: EventSource, @unchecked Sendable {
    // Sendable: touched on its loop's thread only.

    /// Bytes that the kernel may hold without having sent them, so that urgent data does not wait behind more.
    private static let unsentLimit: UInt32 = 256 << 10
    /// Bytes written in one turn before other streams come first.
    private static let turnBudget = 1 << 20
    /// Bytes received in one call: large enough that system calls and the kernel's work on segments weigh little, small
    /// enough for the processor's nearer caches.
    private static let receiveLimit = 128 << 10
    /// The same while `worksInSteps`, and bytes encrypted before they are sent: whole records of 16 KiB.
    private static let step = 32 << 10
    /// The least room to receive into, in a buffer of the stream's own.
    private static let growth = 64 << 10
    /// An unconsumed rest up to this size is copied in front of the next bytes; a larger one is received behind.
    private static let copyLimit = 32 << 10
    /// Encrypted answers to a peer that sends and never receives.
    private static let answerLimit = 1 << 20

    public let localAddress: SocketAddress
    public let remoteAddress: SocketAddress
    /// Bytes handed to the operating system; with TLS, before encryption.
    public private(set) var bytesSent: UInt64 = 0
    /// Bytes received; with TLS, after decryption.
    public private(set) var bytesReceived: UInt64 = 0
    /// A hint set inside `stream(_:didReceive:)`: so many bytes, counted from the first unconsumed one, make the next
    /// frame. Large ones are then received into a buffer of the stream's own, without copies. Forgotten at each call.
    public var bytesWanted = 0
    /// A hint: how much may be under way depends on what each side answers to the part before, as it does with a body under
    /// flow control. Then bytes are received, encrypted and sent in smaller parts, so that both sides work at the same
    /// time; larger parts cost less for each byte otherwise.
    public var worksInSteps = false
    /// The delegate may have parts of files to send. Not with TLS, nor on a thread whose SIGPIPE is not blocked: the
    /// kernel raises it when such a part meets a connection that is gone.
    public var sendsRegions = false

    private var delegate: (any StreamDelegate)?
    private var tls: TLSSession?
    /// The TLS of a proxy, beneath `tls`.
    private var layer: TLSLayer?
    /// What the delegate did not consume.
    private var held = ByteQueue()
    /// What the socket did not take; with TLS, encrypted.
    private var pending = ByteQueue()
    /// Why output failed; reported when the input has been read to its end.
    private var outputError: TransportError?

    private var isOpen = true
    private var isReading = false
    private var isDelivering = false
    private var isDirty = false
    private var isReady = false
    /// `outputError` is to be reported at the next chance; nothing is received or sent any more.
    private var isFailed = false
    /// The socket takes no more for now.
    private var isBlocked = false
    private var wantsOutput = false
    private var hasUnflushed = false
    /// The handshake stands still until `answerTrust`.
    private var isWaitingForTrust = false
    private var isFinishing = false
    private var hasFinished = false
    /// The peer sends no more, and the delegate goes on.
    public private(set) var hasInputEnded = false

    /// Takes over a connected socket: makes it non-blocking, close-on-exec, without delay. Loop thread only.
    ///
    /// Nothing is read before `startReading`.
    /// - Parameter peer: of a socket that an `Acceptor` has given, the peer's address that came with it: nothing has to be
    ///   asked or set again. nil: the system is asked.
    public init(
        loop: EventLoop, descriptor: Int32, delegate: any StreamDelegate, acceptedFrom peer: SocketAddress? = nil
    ) {
        localAddress = .local(of: descriptor)
        remoteAddress = peer ?? .remote(of: descriptor)
        self.delegate = delegate
        super.init(loop: loop, descriptor: descriptor)
        if peer == nil { _ = csystem_set_nonblocking(descriptor) }
        if localAddress.family != .unix { _ = csystem_set_stream_options(descriptor, Self.unsentLimit) }
        attach()
    }

    /// The socket, which stays the stream's; −1 after the end.
    public var socketDescriptor: Int32 { isOpen ? descriptor : -1 }

    /// Whether the stream was closed or has ended.
    public var isClosed: Bool { !isOpen }

    /// Whether the TLS handshake is done.
    public var isSecure: Bool { tls?.isSecured ?? false }

    /// Bytes that were filled and wait for the socket; with TLS, after encryption.
    public var bytesPending: Int { pending.count }

    /// "TLSv1.3" after the handshake; nil without TLS and after the end.
    public var tlsVersion: String? { agreed?.version }

    /// OpenSSL's name of the cipher suite, likewise.
    public var tlsCipher: String? { agreed?.cipher }

    /// The peer's certificate in DER, likewise; nil if it gave none.
    public var peerCertificateDER: [UInt8]? { agreed?.peerCertificate }

    /// The protocol that ALPN agreed on, likewise; nil: none.
    public var applicationProtocol: String? { agreed?.applicationProtocol }

    /// Whether the handshake was shortened by a ticket of an earlier connection.
    public var isResumed: Bool { agreed?.isResumed ?? false }

    private var agreed: TLSSession? {
        guard let tls, tls.isSecured else { return nil }
        return tls
    }

    /// Whether the stream owns memory for bytes now; an idle one does not.
    var ownsBuffers: Bool {
        held.ownsMemory || pending.ownsMemory || tls?.leftover.ownsMemory ?? false || layer?.ownsMemory ?? false
    }

    private var subject: String { "connection to \(remoteAddress)" }

    // MARK: Commands

    /// Gives the stream to another delegate, which gets all calls from now on, and the bytes that are held unconsumed.
    ///
    /// In `stream(_:didReceive:)` the bytes behind those that are reported as consumed go to the new delegate.
    public func handOver(to new: any StreamDelegate) {
        guard isOpen else { return }
        delegate = new
        if isReading { markReady() }
    }

    /// Begins TLS: all bytes from here on are encrypted, those held unconsumed included.
    ///
    /// A stream that is secured already (by a proxy) gets a second TLS inside the first.
    /// The handshake goes on whether or not the stream is reading; output asked for meanwhile follows it.
    /// - Parameter serverName: whom the certificate must be for; nil only where nothing is verified. Names go out as
    ///   SNI, addresses do not (RFC 6066 §3).
    /// - Parameter asksProgram: whether `stream(_:needsTrust:)` decides on the peer's certificate instead of OpenSSL.
    /// - Parameter serverPort: tells the server's sessions from others of the same host; 0 if that does not matter.
    public func startTLS(
        _ context: TLSContext, serverName: String?, isServer: Bool, asksProgram: Bool = false, serverPort: UInt16 = 0
    ) {
        guard isOpen, layer == nil, tls?.isSecured != false else { return }
        do throws(TransportError) {
            let peer = isServer ? remoteAddress.description : serverName ?? remoteAddress.description
            // While the outer TLS is being read, in `didReceive`, it becomes the layer when that is done.
            let outer = isDelivering ? nil : tls
            let inner = try TLSSession(
                context: context, serverName: serverName, isServer: isServer, peer: peer, port: serverPort,
                asksProgram: asksProgram)
            layer = outer.map { TLSLayer($0) }
            tls = inner
            loop.makeCipherBuffers()
        } catch {
            failSoon(error)
        }
        markReady()
    }

    /// Answers `stream(_:needsTrust:)`: the handshake goes on, or fails.
    public func answerTrust(_ isTrusted: Bool) {
        guard isOpen, isWaitingForTrust, let tls else { return }
        tls.answer(isTrusted)
        isWaitingForTrust = false
        markReady()
    }

    /// Lets bytes come. The same as `resumeReading`.
    public func startReading() { resumeReading() }

    /// Lets no more bytes come, so that the peer is slowed down in the end. At once, also inside `didReceive`.
    public func pauseReading() { isReading = false }

    /// Lets bytes come again; those held unconsumed are given again.
    public func resumeReading() {
        guard isOpen, !isReading, !hasInputEnded else { return }
        isReading = true
        if tls != nil || isDelivering || !held.isEmpty {
            markReady()
        } else {
            updateInterest()
        }
    }

    /// `stream(_:fill:)` will be called at the end of this turn.
    public var willFill: Bool { wantsOutput && isDirty && !isBlocked && isOpen && !isFailed }

    /// Asks for calls of `stream(_:fill:)` at the end of this turn. Cheap, and idempotent within a turn.
    public func requestOutput() {
        guard isOpen, !isFinishing else { return }
        wantsOutput = true
        markDirty()
    }

    /// Sends what was asked for before the end of the turn, so that the peer has something to do while this side goes on
    /// with what it has received. May be called inside `stream(_:didReceive:)`.
    public func flushEarly() {
        guard willFill, outputError == nil else { return }
        flush()
    }

    /// Ends this side's output, after what `stream(_:fill:)` still gives: close_notify with TLS, then FIN. Bytes still
    /// come.
    public func finishOutput() {
        guard isOpen, !isFinishing else { return }
        isFinishing = true
        markDirty()
    }

    /// Closes now, also inside any callback; what was not sent is lost. No callback comes any more.
    public func close() {
        guard isOpen else { return }
        sayEnd()
        tearDown()
    }

    /// Sends close_notify for the peer's sake if it costs no wait; `finishOutput` is the orderly way.
    private func sayEnd() {
        guard let tls, tls.isSecured, pending.isEmpty, outputError == nil else { return }
        tls.setOutput(loop.cipherOutput)
        tls.sendEnd()
        let count = tls.takeOutput()
        if count > 0, let base = loop.cipherOutput.baseAddress { _ = transmit(base, count) }
        layer?.sendEnd(descriptor)
    }

    private func tearDown() {
        isOpen = false
        let owner = delegate
        delegate = nil
        tls = nil
        layer = nil
        held.removeAll()
        pending.removeAll()
        withExtendedLifetime(owner) { detach() }
    }

    private func end(_ error: TransportError?) {
        guard isOpen else { return }
        let owner = delegate
        tearDown()
        owner?.stream(self, didEnd: error)
    }

    override func loopDidEnd() {
        end(TransportError(domain: .closed, kind: .other, code: 0, text: "\(subject): the event loop was stopped"))
    }

    private func markDirty() {
        guard !isDirty, !isBlocked else { return }
        isDirty = true
        loop.addDirty(self)
    }

    private func markReady() {
        guard !isReady else { return }
        isReady = true
        loop.addReady(self)
    }

    private var wantsInput: Bool {
        if isWaitingForTrust { return false }
        return isReading || (tls.map { !$0.isSecured } ?? false)
    }

    private func updateInterest() {
        guard isOpen else { return }
        setInterest((wantsInput ? CSYSTEM_IN : 0) | (isBlocked ? CSYSTEM_OUT : 0))
    }

    private func setInterest(_ events: UInt32) {
        let code = watch(events)
        if code < 0 { failSoon(.posix(-code, "watch the \(subject)")) }
    }

    /// Ends the stream with an error, but not from inside a call to it.
    private func failSoon(_ error: TransportError) {
        outputError = error
        isFailed = true
        markReady()
    }

    // MARK: Events

    override func handle(events: UInt32) {
        if isFailed { return end(outputError) }
        let isBroken = events & (CSYSTEM_ERR | CSYSTEM_HUP) != 0
        if isBlocked, isBroken || events & CSYSTEM_OUT != 0 {
            isBlocked = false
            flush()
        }
        guard isOpen else { return }
        // Both directions have ended, which is no end in order while there is something to send.
        if isBroken, hasInputEnded { return end(outputError ?? .posix(ECONNRESET, subject)) }
        if isBroken || events & CSYSTEM_IN != 0 {
            if isReady, tls != nil || !held.isEmpty {
                // What is here already comes first, later in this turn: it may be more work than there is time for, and
                // TLS may know of an end in order behind which the socket's would be none.
            } else if wantsInput {
                receive()
            } else {
                // Paused: watching on would only spin.
                updateInterest()
            }
        } else if events & CSYSTEM_OUT != 0, !isBlocked {
            updateInterest()
        }
    }

    /// Goes on with what is here already; the loop calls it once for each `addReady`.
    func continueReady() {
        isReady = false
        guard isOpen else { return }
        if isFailed { return end(outputError) }
        if let tls {
            readTLS(tls, receiving: wantsInput && layer?.mayHaveInput ?? false, again: true)
            if isOpen, wantsInput { updateInterest() }
        } else if isReading {
            if !held.isEmpty { deliverHeld() }
            if isOpen, isReading { updateInterest() }
        }
    }

    /// Sends at the end of the turn; the loop calls it once for each `addDirty`.
    func flushDirty() {
        isDirty = false
        guard isOpen, !isBlocked, !isFailed else { return }
        flush()
    }

    // MARK: The socket, or the proxy's TLS in front of it

    @inline(__always)
    private func transmit(_ base: UnsafeRawPointer, _ count: Int) -> Int {
        guard let layer else { return Syscall.send(descriptor, base, count) }
        return layer.send(descriptor, base, count)
    }

    @inline(__always)
    private func collect(_ base: UnsafeMutableRawPointer, _ count: Int) -> Int {
        guard let layer else { return Syscall.receive(descriptor, base, count) }
        return layer.receive(descriptor, base, count)
    }

    // MARK: Input

    private func receive() {
        if let tls {
            readTLS(tls, receiving: true, again: false)
        } else {
            receivePlain()
        }
    }

    /// Where the next bytes go.
    private struct Target {
        var base: UnsafeMutableRawPointer
        /// Bytes in front that were held before.
        var offset: Int
        var capacity: Int
        var isShared: Bool
    }

    /// The loop's buffer, with the held bytes copied to its start, or the stream's own behind the held bytes.
    private func makeTarget() -> Target? {
        let shared = loop.readBuffer
        if held.count <= Self.copyLimit, bytesWanted <= shared.count / 2, let base = shared.baseAddress {
            let offset = held.count
            if offset > 0, let source = held.bytes.baseAddress { memcpy(base, source, offset) }
            return Target(base: base, offset: offset, capacity: shared.count, isShared: true)
        }
        // Grows with what has come, not with what was claimed.
        let missing = max(bytesWanted - held.count, Self.growth)
        guard held.reserve(held.room.count >= Self.growth / 2 ? 0 : min(missing, max(held.count, Self.growth))),
            let base = held.bytes.baseAddress
        else { return nil }
        return Target(
            base: base, offset: held.count, capacity: held.count + held.room.count, isShared: false)
    }

    private func failForMemory() {
        end(.posix(ENOMEM, "receive from the \(subject)"))
    }

    private func receivePlain() {
        guard let target = makeTarget() else { return failForMemory() }
        let limit = worksInSteps ? Self.step : Self.receiveLimit
        let room = min(target.capacity - target.offset, limit)
        let result = Syscall.receive(descriptor, target.base + target.offset, room)
        if result > 0 {
            take(result, target)
        } else {
            if held.isEmpty { held.removeAll() }
            if result == 0 {
                inputDidEnd()
            } else if result != -Int(EAGAIN) {
                end(outputError ?? .posix(Int32(truncatingIfNeeded: -result), subject))
            }
        }
    }

    /// The peer sends no more: the end, unless the delegate goes on.
    private func inputDidEnd() {
        // In the older TLS this ends both directions (RFC 5246 §7.2.1).
        let mayGoOn = outputError == nil && !hasFinished && (tls.map { $0.version == "TLSv1.3" } ?? true)
        guard mayGoOn, delegate?.stream(self, inputDidEndLeaving: held.count) == true else {
            if tls != nil, isOpen { sayEnd() }
            return end(outputError)
        }
        guard isOpen else { return }
        hasInputEnded = true
        isReading = false
        held.removeAll()
        updateInterest()
    }

    /// Gives the delegate what is held and `received` bytes behind it, and keeps the rest.
    private func take(_ received: Int, _ target: Target) {
        bytesReceived &+= UInt64(received)
        let total = target.offset + received
        if target.isShared {
            let consumed = deliver(UnsafeMutableRawBufferPointer(start: target.base, count: total))
            guard isOpen else { return }
            let rest = total - consumed
            if rest == 0 {
                held.removeAll()
            } else if rest == target.offset + received, target.offset == held.count, target.offset > 0 {
                // Nothing was consumed: what is held stays, the new bytes go behind it.
                if !held.append(target.base + target.offset, received) { failForMemory() }
            } else {
                held.clear()
                if !held.append(target.base + consumed, rest) { failForMemory() }
            }
        } else {
            held.commit(received)
            deliverHeld()
        }
    }

    /// Gives the delegate what is held. The bytes stay valid during the call even if it closes the stream.
    private func deliverHeld() {
        var own = ByteQueue()
        swap(&own, &held)
        let consumed = deliver(own.bytes)
        guard isOpen else { return }
        own.removeFirst(consumed)
        if !own.isEmpty { swap(&own, &held) }
    }

    private func deliver(_ bytes: UnsafeMutableRawBufferPointer) -> Int {
        guard let delegate else { return 0 }
        bytesWanted = 0
        isDelivering = true
        let consumed = delegate.stream(self, didReceive: bytes)
        isDelivering = false
        return min(max(consumed, 0), bytes.count)
    }

    // MARK: Output

    private func flush() {
        if let tls {
            flushTLS(tls)
        } else {
            flushPlain()
        }
    }

    /// Sends what the socket did not take before. False: it still takes no more, or the stream has ended.
    private func sendPending() -> Bool {
        if let layer, layer.hasPending {
            let result = layer.flush(descriptor)
            if result < 0 {
                outputFailed(Int32(truncatingIfNeeded: -result))
                return false
            }
            if layer.hasPending {
                block()
                return false
            }
        }
        while !pending.isEmpty {
            guard let base = pending.bytes.baseAddress else { return false }
            let size = pending.count
            let result = transmit(base, size)
            if result < 0, result != -Int(EAGAIN) {
                outputFailed(Int32(truncatingIfNeeded: -result))
                return false
            }
            if result > 0 {
                if tls == nil { bytesSent &+= UInt64(result) }
                pending.removeFirst(result)
            }
            if result < size || layer?.hasPending ?? false {
                block()
                return false
            }
        }
        pending.removeAll()
        return true
    }

    /// Sends bytes behind which nothing is pending; keeps what the socket does not take. False as `sendPending`.
    private func sendNow(_ base: UnsafeRawPointer, _ size: Int) -> Bool {
        let result = transmit(base, size)
        if result == size {
            if tls == nil { bytesSent &+= UInt64(size) }
            guard let layer, layer.hasPending else { return true }
            block()
            return false
        }
        if result < 0, result != -Int(EAGAIN) {
            outputFailed(Int32(truncatingIfNeeded: -result))
            return false
        }
        let sent = max(result, 0)
        if tls == nil { bytesSent &+= UInt64(sent) }
        guard pending.append(base + sent, size - sent) else {
            end(.posix(ENOMEM, "send to the \(subject)"))
            return false
        }
        block()
        return false
    }

    private func block() {
        isBlocked = true
        setInterest(watched | CSYSTEM_OUT)
    }

    private func unblock() {
        isBlocked = false
        if watched & CSYSTEM_OUT != 0 { setInterest(watched & ~CSYSTEM_OUT) }
    }

    private func outputFailed(_ code: Int32) {
        let error = layer?.failure ?? TransportError.posix(code, subject)
        pending.removeAll()
        unblock()
        // What the peer sent before it went away may say why: it is read first. A broken socket is always readable.
        guard wantsInput, error.kind == .reset else { return end(error) }
        if outputError == nil { outputError = error }
        isFinishing = true
        hasFinished = true
        wantsOutput = false
    }

    private func fill() -> Int {
        guard let delegate else { return 0 }
        let count = min(max(delegate.stream(self, fill: loop.writeBuffer), 0), loop.writeBuffer.count)
        if count > 0 { hasUnflushed = true }
        return isOpen ? count : 0
    }

    private func flushPlain() {
        guard outputError == nil, sendPending(), let base = loop.writeBuffer.baseAddress else { return }
        var budget = Self.turnBudget
        if !hasFinished, wantsOutput || isFinishing || hasUnflushed {
            while true {
                wantsOutput = false
                var count = fill()
                if count > 0 {
                    guard sendNow(base, count) else { return }
                } else {
                    guard sendsRegions, isOpen else { break }
                    count = sendRegion()
                    if count < 0 { return }
                    if count == 0 { break }
                }
                budget -= count
                if budget <= 0 { return goOnNextTurn() }
            }
        }
        flushed()
    }

    /// Lets the kernel send a part of a file: how many bytes; 0: there is none; -1: not now, or never again.
    private func sendRegion() -> Int {
        guard let region = delegate?.streamRegion(self) else { return 0 }
        let result = csystem_sendfile(
            descriptor, region.descriptor, region.offset, min(max(region.count, 0), Self.turnBudget))
        if result == -Int(EAGAIN) {
            block()
            return -1
        }
        guard result > 0 else {
            // The file has become shorter than was promised, or the peer has gone.
            if result < 0 {
                outputFailed(Int32(truncatingIfNeeded: -result))
            } else {
                end(.posix(EIO, subject))
            }
            return -1
        }
        bytesSent &+= UInt64(result)
        hasUnflushed = true
        delegate?.stream(self, didSendRegion: result)
        return isOpen ? result : -1
    }

    private func goOnNextTurn() {
        wantsOutput = true
        unblock()
        markDirty()
    }

    private func flushed() {
        guard isOpen else { return }
        unblock()
        if hasUnflushed {
            hasUnflushed = false
            delegate?.streamDidFlush(self)
        }
        guard isOpen, isFinishing, !hasFinished, !isBlocked else { return }
        hasFinished = true
        if let tls {
            tls.setOutput(loop.cipherOutput)
            tls.sendEnd()
            guard sendCipher(tls) else { return }
            layer?.sendEnd(descriptor)
            if !pending.isEmpty || layer?.hasPending ?? false {
                // FIN follows when the rest is out.
                hasFinished = false
                return
            }
        }
        _ = csystem_shutdown_output(descriptor)
        if hasInputEnded { end(nil) }
    }

    // MARK: TLS

    /// Sends what OpenSSL has put into the output window, or keeps it. False: the stream has ended.
    private func sendCipher(_ tls: TLSSession) -> Bool {
        let count = tls.takeOutput()
        guard count > 0, let base = loop.cipherOutput.baseAddress else { return isOpen }
        guard outputError == nil else { return isOpen }
        if pending.isEmpty {
            _ = sendNow(base, count)
        } else if pending.count > Self.answerLimit || !pending.append(base, count) {
            end(
                TransportError(
                    domain: .tls, kind: .tls, code: 0, text: "TLS with \(tls.peer): the peer does not receive"))
        }
        return isOpen
    }

    /// Goes on with the handshake. True: it is done, and the stream still open.
    private func handshake(_ tls: TLSSession) -> Bool {
        tls.setOutput(loop.cipherOutput)
        while true {
            let outcome = tls.handshake()
            switch outcome {
            case .done:
                guard sendCipher(tls) else { return false }
                delegate?.streamDidSecure(self)
                guard isOpen else { return false }
                if wantsOutput || isFinishing { markDirty() }
                updateInterest()
                return isOpen
            case .wantsInput:
                _ = sendCipher(tls)
                return false
            case .wantsOutput:
                guard sendCipher(tls) else { return false }
            case .wantsTrust:
                guard sendCipher(tls), let evidence = tls.evidence else { return false }
                isWaitingForTrust = true
                delegate?.stream(self, needsTrust: evidence)
                if isOpen { updateInterest() }
                return false
            case .ended, .failed:
                // The alert that says why goes out first.
                guard sendCipher(tls) else { return false }
                if case .failed(let error) = outcome {
                    end(error)
                } else {
                    endUnexpectedly(tls)
                }
                return false
            }
        }
    }

    private func endUnexpectedly(_ tls: TLSSession) {
        let when = tls.isSecured ? "the peer ended the connection without close_notify" : "the peer ended the handshake"
        end(outputError ?? TransportError(domain: .tls, kind: .ended, code: 0, text: "TLS with \(tls.peer): \(when)"))
    }

    /// Decrypts and delivers what is here and, if `receiving`, what the socket has.
    private func readTLS(_ tls: TLSSession, receiving: Bool, again: Bool) {
        if isWaitingForTrust { return }
        if !tls.hasStarted {
            tls.hasStarted = true
            swap(&tls.leftover, &held)
            updateInterest()
        }
        var window = ByteQueue()
        var failure: Int?
        if !tls.leftover.isEmpty {
            swap(&window, &tls.leftover)
            tls.setInput(window.bytes)
        } else if receiving, let base = loop.cipherInput.baseAddress {
            let capacity = loop.cipherInput.count
            let result = collect(base, worksInSteps ? min(Self.step, capacity) : capacity)
            if result > 0 {
                tls.setInput(UnsafeMutableRawBufferPointer(start: base, count: result))
            } else {
                tls.setInput(UnsafeMutableRawBufferPointer(start: nil, count: 0))
                if result != -Int(EAGAIN) { failure = result }
            }
        } else {
            tls.setInput(UnsafeMutableRawBufferPointer(start: nil, count: 0))
        }
        if let failure {
            if failure == 0 {
                endUnexpectedly(tls)
            } else {
                end(outputError ?? layer?.failure ?? .posix(Int32(truncatingIfNeeded: -failure), subject))
            }
            return
        }
        if tls.isSecured || handshake(tls) { decrypt(tls, again: again) }
        guard isOpen else { return }
        let rest = tls.unread
        if let base = rest.baseAddress, !rest.isEmpty {
            if window.isEmpty {
                if !tls.leftover.append(base, rest.count) { return failForMemory() }
            } else {
                window.removeFirst(window.count - rest.count)
                swap(&window, &tls.leftover)
            }
        }
        tls.setInput(UnsafeMutableRawBufferPointer(start: nil, count: 0))
        if self.tls !== tls, layer == nil { layer = TLSLayer(tls) }
        if let layer, layer.mayHaveInput, wantsInput { markReady() }
    }

    /// Delivers what can be decrypted; with `again`, what is held also if nothing new comes.
    private func decrypt(_ tls: TLSSession, again: Bool) {
        while isReading, self.tls === tls {
            guard let target = makeTarget() else { return failForMemory() }
            var filled = target.offset
            var last = TLSSession.Outcome.done(0)
            tls.setOutput(loop.cipherOutput)
            reading: while filled < target.capacity {
                last = tls.read(target.base + filled, target.capacity - filled)
                switch last {
                case .done(let count): filled += count
                case .wantsOutput:
                    guard sendCipher(tls) else { return }
                default: break reading
                }
            }
            guard sendCipher(tls) else { return }
            if filled > target.offset {
                take(filled - target.offset, target)
            } else if held.isEmpty {
                held.removeAll()
            } else if again {
                deliverHeld()
            }
            guard isOpen, self.tls === tls else { return }
            switch last {
            case .done, .wantsOutput: continue
            case .wantsInput, .wantsTrust: return
            case .ended:
                // Whoever has paused has not seen all that came before.
                if isReading { inputDidEnd() }
                return
            case .failed(let error):
                end(outputError ?? error)
                return
            }
        }
    }

    private func flushTLS(_ tls: TLSSession) {
        guard outputError == nil, sendPending() else { return }
        guard tls.isSecured else { return unblock() }
        guard let base = loop.writeBuffer.baseAddress else { return }
        var budget = Self.turnBudget
        if !hasFinished, !tls.hasSentEnd, wantsOutput || isFinishing || hasUnflushed {
            while true {
                wantsOutput = false
                let count = fill()
                if count == 0 { break }
                guard encrypt(tls, base, count) else { return }
                bytesSent &+= UInt64(count)
                if isBlocked { return }
                budget -= count
                if budget <= 0 { return goOnNextTurn() }
            }
        }
        flushed()
    }

    /// Encrypts and sends, or keeps. False: the stream has ended, or its output has failed.
    private func encrypt(_ tls: TLSSession, _ base: UnsafeRawPointer, _ count: Int) -> Bool {
        tls.setOutput(loop.cipherOutput)
        var done = 0
        var step = worksInSteps ? Self.step : count
        while done < count {
            switch tls.write(base + done, min(step, count) - done) {
            case .done(let size):
                done += size
                guard done == step, done < count else { continue }
                step += Self.step
                guard sendCipher(tls), outputError == nil else { return false }
            case .wantsOutput:
                guard sendCipher(tls), outputError == nil else { return false }
            case .wantsInput, .wantsTrust:
                // Only a renegotiation would need input here, and those are off.
                end(TransportError(domain: .tls, kind: .tls, code: 0, text: "TLS with \(tls.peer): renegotiation"))
                return false
            case .ended:
                endUnexpectedly(tls)
                return false
            case .failed(let error):
                _ = sendCipher(tls)
                end(error)
                return false
            }
        }
        return sendCipher(tls) && outputError == nil
    }
}
