import BLIPProtocol
import CBLIP
import Transport

/// Brings whole frames to a connection and takes them away, where there is no stream: the other end in the same process,
/// or a transport of the program.
///
/// As work of the loop it is the connection's output at the end of a turn. It belongs to the loop's thread, but for its
/// inbox. The connection keeps it and it the connection, until `end`.
class FrameCarrier: LoopWork, @unchecked Sendable {
    /// What became of a frame.
    enum Outcome {
        case taken
        /// Not now: `didDrain` follows.
        case full
        case failed(blip_status)
    }

    final var connection: Connection?
    /// What comes from other threads, or while the connection does not read.
    final var inbox: FrameInbox?
    /// A frame that was cut but not taken.
    final var held: [UInt8]?
    final var isBlocked = false
    final var isDue = false

    /// Asks for a turn of output.
    final func requestOutput(_ loop: EventLoop) {
        guard !isDue, !isBlocked else { return }
        isDue = true
        loop.atEndOfTurn(self)
    }

    override func run() {
        connection?.begin()
        sendIfDue()
    }

    final func sendIfDue() {
        guard isDue else { return }
        isDue = false
        connection?.sendFrames()
    }

    /// There is room again.
    final func didDrain() {
        isBlocked = false
        if let connection { requestOutput(connection.loop) }
    }

    /// Offers the frame that was not taken; true if none is left.
    final func sendHeld() -> Outcome {
        guard var frame = held else { return .taken }
        held = nil
        let outcome = frame.withUnsafeMutableBytes { send($0) }
        if case .full = outcome { held = frame }
        return outcome
    }

    /// Takes a frame away, which may be overwritten.
    func send(_ frame: UnsafeMutableRawBufferPointer) -> Outcome { .taken }

    /// The connection reads again after a pause.
    final func resumeReading() {
        if let inbox { inbox.loop.post(inbox) }
    }

    /// Who sends to this connection may go on.
    func makeRoomKnown() {}

    /// This side ends the connection.
    func close(code: UInt16, reason: [UInt8]) {}

    /// The connection has ended.
    func end() {
        connection = nil
        held = nil
        inbox?.close()
        inbox = nil
    }
}
