import BLIPProtocol
import CBLIP
import Glibc
import Transport
import WebSocketProtocol

/// Frames as binary messages of a WebSocket (BLIP §2.1, RFC 6455).
final class WebSocketLink: Link {
    private var parser: WebSocketParser
    private let role: WebSocketRole
    private var closing: WebSocketCloseHandshake

    /// Only the last ping is answered (RFC 6455 §5.5.3), so that a flood of them costs nothing.
    private var pong: [UInt8]?
    private var pings: [Ping] = []
    private var closeFrame: (code: UInt16?, reason: [UInt8])?
    private var mustWriteClose = false
    private var isCloseFrameWritten = false
    private var pingCounter: UInt64 = 0

    init(role: WebSocketRole, configuration: Configuration) {
        self.role = role
        // A frame has its header and checksum around the payload that the limit counts.
        parser = WebSocketParser(role: role, maximumMessage: configuration.limits.incomingFrame)
        closing = WebSocketCloseHandshake(role: role, timeout: configuration.closeTimeout)
    }

    // MARK: Input

    override func receive(
        _ bytes: UnsafeMutableRawBufferPointer, from start: Int, _ session: Session, _ connection: Connection
    ) -> Int {
        guard let base = bytes.baseAddress else { return 0 }
        var consumed = start
        var framesUnanswered = 0
        let inflatedBefore = session.engine.bytesInflated
        var trifles = 0
        while consumed < bytes.count, connection.mayReceive {
            if trifles > Self.triflesBudget {
                connection.letOthersFirst()
                return consumed
            }
            let rest = UnsafeMutableRawBufferPointer(start: base + consumed, count: bytes.count - consumed)
            switch parser.next(rest) {
            case .binary(let payload, let count):
                consumed += count
                if connection.isTracing { connection.trace(UnsafeRawBufferPointer(payload), isOutgoing: false) }
                if connection.phase == .open { connection.handle(session.engine.receive(payload), session) }
                framesUnanswered &+= 1
                if framesUnanswered == Self.framesAnsweredTogether {
                    framesUnanswered = 0
                    connection.stream?.flushEarly()
                }
                if session.engine.bytesInflated &- inflatedBefore > Link.inflationBudget, consumed < bytes.count {
                    connection.letOthersFirst()
                    return consumed
                }
            case .incomplete(let needed):
                connection.stream?.bytesWanted = needed
                return consumed
            case .consumed(let count):
                consumed += count
                trifles &+= 1
            case .ping(let payload, let count):
                pong = [UInt8](payload)
                consumed += count
                trifles &+= 1
                connection.requestOutput()
            case .pong(let payload, let count):
                handlePong(payload, connection)
                consumed += count
                trifles &+= 1
            case .close(let code, let reason, let count):
                connection.peerDidClose(code, String(decoding: reason, as: UTF8.self))
                closeFrame = closeFrame ?? (code, [])
                act(on: closing.received(code: code, now: connection.loop.refreshNow()), connection)
                consumed += count
            case .text(_, let count):
                consumed += count
                if connection.phase == .open {
                    connection.break_(
                        session, 1002,
                        Failure(
                            BLIP_ERROR_PROTOCOL, code: 1002, "The peer sent a text message; BLIP frames are binary."))
                }
            case .failed(let code, let text):
                connection.break_(
                    session, code, Failure(BLIP_ERROR_WEBSOCKET, domain: "WebSocket", code: Int64(code), "\(text)"))
                return bytes.count
            }
        }
        return connection.phase == .open || connection.phase == .closing ? consumed : bytes.count
    }

    /// Control frames and fragments in one turn before other connections come first: as many as 64 KiB hold of them
    /// would be much work.
    private static let triflesBudget = 512

    /// So many frames are taken in before what they have led to is sent. With all that have come in one write each side
    /// would only work while the other waits; with many fewer, system calls would cost more than that.
    private static let framesAnsweredTogether = 128

    // MARK: Output

    override func fill(
        _ buffer: UnsafeMutableRawBufferPointer, _ session: Session, _ connection: Connection
    ) -> Int {
        guard let base = buffer.baseAddress else { return 0 }
        let limit = connection.configuration.limits.outgoingFrame
        let maskBytes = role == .client ? 4 : 0
        let headerRoom = (limit > 0xFFFF ? 10 : 4) + maskBytes
        let room = limit + 64 + headerRoom + WebSocketFrame.maximumControlFrame
        var used = writeControl(buffer, connection)
        guard connection.phase == .open else { return used }
        let deflatedBefore = session.engine.bytesDeflated
        while buffer.count - used >= room {
            if session.engine.bytesDeflated &- deflatedBefore >= Self.deflationPart {
                connection.requestOutput()
                break
            }
            let start = base + used
            guard
                var frame = connection.nextFrame(
                    of: session,
                    into: UnsafeMutableRawBufferPointer(
                        start: start + headerRoom, count: buffer.count - used - headerRoom))
            else { break }
            var payload = start + headerRoom
            let header = WebSocketFrame.headerSize(payload: frame.count, masked: maskBytes > 0)
            if header < headerRoom {
                payload = start + header
                memmove(payload, start + headerRoom, frame.count)
            }
            if maskBytes > 0 {
                let key = connection.context.maskKeys.next()
                _ = WebSocketFrame.writeHeader(
                    opcode: .binary, final: true, payload: frame.count, maskKey: key, to: start)
                WebSocketFrame.mask(UnsafeMutableRawBufferPointer(start: payload, count: frame.count), key: key)
            } else {
                _ = WebSocketFrame.writeHeader(
                    opcode: .binary, final: true, payload: frame.count, maskKey: nil, to: start)
            }
            used += header + frame.count
            if let message = frame.message.take().map(Connection.own),
                connection.frameDidLeave(message, isLast: frame.isLast, session)
            {
                connection.context.recycle(message)
            }
        }
        return used
    }

    /// Bytes deflated before what has become of them is sent, so that the peer works on it meanwhile.
    private static let deflationPart: UInt64 = 16 << 10

    /// Writes the control frames that wait; how many bytes they take.
    private func writeControl(_ buffer: UnsafeMutableRawBufferPointer, _ connection: Connection) -> Int {
        guard pong != nil || !pings.isEmpty || mustWriteClose else { return 0 }
        guard let base = buffer.baseAddress else { return 0 }
        var used = 0
        func key() -> UInt32? { role == .client ? connection.context.maskKeys.next() : nil }
        if let pong, buffer.count - used >= WebSocketFrame.maximumControlFrame {
            self.pong = nil
            used += pong.withUnsafeBytes {
                WebSocketFrame.writeControl(.pong, payload: $0, maskKey: key(), to: base + used)
            }
        }
        for index in pings.indices where !pings[index].isWritten {
            guard buffer.count - used >= WebSocketFrame.maximumControlFrame else { break }
            pings[index].isWritten = true
            used += withUnsafeBytes(of: pings[index].payload) {
                WebSocketFrame.writeControl(.ping, payload: $0, maskKey: key(), to: base + used)
            }
        }
        if mustWriteClose, let frame = closeFrame, buffer.count - used >= WebSocketFrame.maximumControlFrame {
            mustWriteClose = false
            isCloseFrameWritten = true
            used += frame.reason.withUnsafeBytes {
                WebSocketFrame.writeClose(code: frame.code, reason: $0, maskKey: key(), to: base + used)
            }
        }
        return used
    }

    override func didFlush(_ connection: Connection) {
        guard isCloseFrameWritten else { return }
        isCloseFrameWritten = false
        act(on: closing.didSend(now: connection.loop.now), connection)
        // No answer can come.
        if connection.stream?.hasInputEnded == true { connection.stream?.finishOutput() }
    }

    // MARK: Ending

    override func close(code: UInt16, reason: [UInt8], _ connection: Connection) {
        closeFrame = (code, reason)
        act(on: closing.close(code: code, now: connection.loop.refreshNow()), connection)
    }

    override func fail(code: UInt16, text: String, _ connection: Connection) {
        var text = text
        if closeFrame == nil { closeFrame = (code, text.withUTF8 { [UInt8]($0.prefix(123)) }) }
        act(on: closing.fail(code: code, now: connection.loop.refreshNow()), connection)
    }

    override func timeOut(now: UInt64, _ connection: Connection) { act(on: closing.timeOut(now: now), connection) }

    /// Does what the closing handshake says.
    private func act(on action: WebSocketCloseHandshake.Action, _ connection: Connection) {
        switch action {
        case .none: break
        case .sendClose(let code):
            closeFrame = (code, closeFrame?.reason ?? [])
            mustWriteClose = true
            if let code { connection.withInfo { if $0.closeCode == 0 { $0.closeCode = Int32(code) } } }
            connection.requestOutput()
        case .finishOutput: connection.stream?.finishOutput()
        case .drop: return connection.finish(connection.failure)
        }
        if let deadline = closing.deadline { connection.armTimer(at: deadline) }
    }

    // MARK: Pings

    override func ping(_ handler: Handler<blip_pong_fn>?, deadline: UInt64, now: UInt64, _ connection: Connection) {
        pingCounter &+= 1
        pings.removeAll { $0.handler == nil }
        pings.append(Ping(payload: pingCounter, sentAt: now, deadline: deadline, handler: handler))
        connection.requestOutput()
    }

    override var pingDeadline: UInt64 { pings.reduce(.max) { min($0, $1.deadline) } }

    override func endPings(_ status: blip_status, now: UInt64, _ connection: Connection) {
        let late = pings.filter { now >= $0.deadline }
        guard !late.isEmpty else { return }
        pings.removeAll { now >= $0.deadline }
        for ping in late { connection.report(ping, status, 0) }
    }

    private func handlePong(_ payload: UnsafeRawBufferPointer, _ connection: Connection) {
        guard payload.count == 8 else { return }
        let number = payload.loadUnaligned(as: UInt64.self)
        guard let index = pings.firstIndex(where: { $0.payload == number && $0.isWritten }) else { return }
        // A pong answers all pings before it (RFC 6455 §5.5.3).
        let answered = pings[...index]
        pings.removeFirst(answered.count)
        let now = connection.loop.refreshNow()
        for ping in answered { connection.report(ping, BLIP_OK, Int64((now &- ping.sentAt) / 1000)) }
        connection.armNextTimer()
    }
}
