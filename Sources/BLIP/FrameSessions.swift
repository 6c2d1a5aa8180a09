import BLIPProtocol
import Transport

/// The sessions of one loop's connections without a stream. There may be a million of them: those that have not been used
/// for the longest time, with nothing under way, give up their sessions, which are made anew when they are used again.
final class FrameSessions: LoopWork, @unchecked Sendable {
    /// So many sessions are kept in any case.
    private static let limit = 1024

    /// In the order in which their sessions were made; nil: it is gone.
    private var awake: [Connection?] = []
    private var count = 0
    private var isDue = false

    /// A session was made.
    func add(_ connection: Connection, _ link: FrameLink, _ loop: EventLoop) {
        link.place = awake.count
        awake.append(connection)
        count += 1
        guard count > Self.limit || awake.count > 2 * count + Self.limit, !isDue else { return }
        isDue = true
        // Where no session is in use.
        loop.atEndOfTurn(self)
    }

    /// A session is gone.
    func remove(_ link: FrameLink) {
        guard awake.indices.contains(link.place) else { return }
        awake[link.place] = nil
        link.place = -1
        count -= 1
    }

    override func run() {
        isDue = false
        let old = awake
        awake = []
        var excess = count - Self.limit / 2
        for case let connection? in old {
            guard let link = connection.session?.link as? FrameLink else { continue }
            if excess > 0, connection.restSession() {
                excess -= 1
                count -= 1
            } else {
                link.place = awake.count
                awake.append(connection)
            }
        }
    }
}
