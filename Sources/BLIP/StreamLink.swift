import BLIPProtocol
import CBLIP
import Transport

/// Frames of BLIP 1, one after another in a byte stream (BLIP 1 §"Framing"). There are no pings, and no word for an end
/// but the message "Bye".
final class StreamLink: Link {
    private let closeTimeout: UInt64
    private var mustSayFarewell = false

    init(closeTimeout: UInt64) { self.closeTimeout = closeTimeout }

    override func receive(
        _ bytes: UnsafeMutableRawBufferPointer, from start: Int, _ session: Session, _ connection: Connection
    ) -> Int {
        guard let base = bytes.baseAddress else { return 0 }
        var consumed = start
        let inflatedBefore = session.engine.bytesInflated
        while consumed < bytes.count, connection.mayReceive {
            // After a farewell only the end matters.
            guard connection.phase == .open else { return bytes.count }
            let rest = UnsafeMutableRawBufferPointer(start: base + consumed, count: bytes.count - consumed)
            switch Engine.v1FrameLength(UnsafeRawBufferPointer(rest)) {
            case .length(let length):
                guard length <= rest.count else {
                    connection.stream?.bytesWanted = length
                    return consumed
                }
                consumed += length
                let frame = UnsafeMutableRawBufferPointer(rebasing: rest[..<length])
                if connection.isTracing { connection.trace(UnsafeRawBufferPointer(frame), isOutgoing: false) }
                if connection.phase == .open { connection.handle(session.engine.receive(frame), session) }
                if session.engine.bytesInflated &- inflatedBefore > Link.inflationBudget, consumed < bytes.count {
                    connection.letOthersFirst()
                    return consumed
                }
            case .needMore:
                connection.stream?.bytesWanted = 0
                return consumed
            case .failed(let error):
                connection.handle(.failed(error), session)
                return bytes.count
            }
        }
        return connection.phase == .open || connection.phase == .closing ? consumed : bytes.count
    }

    override func fill(
        _ buffer: UnsafeMutableRawBufferPointer, _ session: Session, _ connection: Connection
    ) -> Int {
        if mustSayFarewell {
            mustSayFarewell = false
            return session.engine.writeFarewell(into: buffer)
        }
        let room = connection.configuration.limits.outgoingFrame + 64
        var used = 0
        guard connection.phase == .open else { return used }
        while buffer.count - used >= room {
            guard
                let frame = connection.nextFrame(
                    of: session, into: UnsafeMutableRawBufferPointer(rebasing: buffer[used...]))
            else { break }
            used += frame.count
            if let message = frame.message.map(Connection.own),
                connection.frameDidLeave(message, isLast: frame.isLast, session)
            {
                connection.context.recycle(message)
            }
        }
        return used
    }

    override func close(code: UInt16, reason: [UInt8], _ connection: Connection) {
        // Both may have said so before.
        mustSayFarewell = !connection.hasSaidBye
        finishOutput(connection)
    }

    override func fail(code: UInt16, text: String, _ connection: Connection) { finishOutput(connection) }

    /// Sends what waits, then the end, and waits for that of the peer.
    private func finishOutput(_ connection: Connection) {
        connection.requestOutput()
        connection.stream?.finishOutput()
        let (deadline, overflow) = connection.loop.refreshNow().addingReportingOverflow(closeTimeout)
        if !overflow { connection.armTimer(at: deadline) }
    }
}
