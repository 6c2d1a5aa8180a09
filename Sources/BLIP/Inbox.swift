import BLIPProtocol
import Synchronization
import Transport

/// Messages that other threads have handed to a connection: a stack that the loop takes whole and turns round.
/// Closed for ever when the connection ends, so that nothing is accepted that could not complete.
struct Inbox: ~Copyable {
    private let head = Atomic<UInt>(0)
    private static let closed: UInt = 1

    /// False if the connection has ended. It is posted to its loop if nothing has waited. The message must know it.
    func push(_ message: BLIPMessage, _ connection: Connection) -> Bool {
        let node = Unmanaged.passRetained(message)
        let bits = UInt(bitPattern: node.toOpaque())
        var old = head.load(ordering: .relaxed)
        while true {
            guard old != Self.closed else {
                node.release()
                return false
            }
            message.link = UnsafeRawPointer(bitPattern: old)
            let (done, seen) = head.compareExchange(expected: old, desired: bits, ordering: .acquiringAndReleasing)
            if done { break }
            old = seen
        }
        if old == 0 { connection.loop.post(connection) }
        return true
    }

    /// All messages, oldest first.
    func drain() -> [BLIPMessage] {
        var old = head.load(ordering: .relaxed)
        repeat {
            if old == Self.closed || old == 0 { return [] }
            let (done, seen) = head.compareExchange(expected: old, desired: 0, ordering: .acquiringAndReleasing)
            if done { return collect(old) }
            old = seen
        } while true
    }

    /// The same, and nothing is accepted any more.
    func close() -> [BLIPMessage] {
        let old = head.exchange(Self.closed, ordering: .acquiringAndReleasing)
        return old == Self.closed ? [] : collect(old)
    }

    private func collect(_ first: UInt) -> [BLIPMessage] {
        var messages: [BLIPMessage] = []
        var next = UnsafeRawPointer(bitPattern: first)
        while let pointer = next {
            let message = Unmanaged<BLIPMessage>.fromOpaque(pointer).takeRetainedValue()
            next = message.link
            message.link = nil
            messages.append(message)
        }
        messages.reverse()
        return messages
    }
}
