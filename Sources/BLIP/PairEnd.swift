import BLIPProtocol
import CBLIP
import Transport

/// One end of two connections in the same process. On one loop frames go from engine to engine without a copy; between
/// two, through the other's inbox.
final class PairEnd: FrameCarrier, @unchecked Sendable {
    /// Cut by each side for itself.
    private var other: PairEnd?
    /// The other's inbox; nil on one loop, where it is made when it is needed.
    private var remoteInbox: FrameInbox?

    /// How often the two answer each other before other connections of the loop come first.
    private static let rounds = 16

    /// Joins the ends of two connections that nobody knows yet.
    static func join(_ a: PairEnd, _ b: PairEnd, _ first: EventLoop, _ second: EventLoop) {
        a.other = b
        b.other = a
        guard first !== second else { return }
        a.inbox = FrameInbox(a, first)
        b.inbox = FrameInbox(b, second)
        a.remoteInbox = b.inbox
        b.remoteInbox = a.inbox
    }

    override func run() {
        connection?.beginPaired()
        sendIfDue()
        guard remoteInbox == nil, let other else { return }
        for _ in 0..<Self.rounds {
            guard other.isDue else { return }
            other.sendIfDue()
            guard isDue else { return }
            sendIfDue()
        }
    }

    override func send(_ frame: UnsafeMutableRawBufferPointer) -> Outcome {
        if let remoteInbox { return Self.outcome(remoteInbox.push(UnsafeRawBufferPointer(frame))) }
        // The end is on its way here.
        guard let other, let peer = other.connection else { return .taken }
        if peer.mayReceive, other.inbox?.isEmpty ?? true {
            peer.receiveFrame(frame)
            return .taken
        }
        return Self.outcome(localInbox(of: other, peer).push(UnsafeRawBufferPointer(frame)))
    }

    private static func outcome(_ status: blip_status) -> Outcome {
        // To an end that is closed already: its goodbye is on its way here.
        status == BLIP_AGAIN ? .full : .taken
    }

    private func localInbox(of other: PairEnd, _ peer: Connection) -> FrameInbox {
        if let inbox = other.inbox { return inbox }
        let inbox = FrameInbox(other, peer.loop)
        other.inbox = inbox
        return inbox
    }

    override func makeRoomKnown() {
        guard let other else { return }
        if let remoteInbox { remoteInbox.loop.post { other.didDrain() } } else { other.didDrain() }
    }

    override func close(code: UInt16, reason: [UInt8]) {
        guard let inbox = inboxOfOther else { return }
        if let held { _ = held.withUnsafeBytes { inbox.push($0, isLast: true) } }
        _ = inbox.push(.closed(code: code, reason: reason))
    }

    private var inboxOfOther: FrameInbox? {
        if let remoteInbox { return remoteInbox }
        guard let other, let peer = other.connection else { return nil }
        return localInbox(of: other, peer)
    }

    /// This side was accepted: the other is open too.
    func openOther() {
        guard let other else { return }
        let loop = remoteInbox?.loop ?? connection?.loop
        loop?.post { other.connection?.carrierDidOpen() }
    }

    override func end() {
        // Unless it has heard a goodbye.
        _ = inboxOfOther?.push(.ended(BLIP_ERROR_CONNECTION_LOST))
        super.end()
        other = nil
        remoteInbox = nil
    }
}
