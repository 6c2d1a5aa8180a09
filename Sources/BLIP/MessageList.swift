import BLIPProtocol

/// A stack of messages, linked through the messages themselves, which it holds. A message is in one list at most.
struct MessageList: ~Copyable {
    private var head = MessageList.end
    private(set) var count = 0

    /// What the last message links to: not nil, so that a link tells whether a message is in a list.
    private static var end: UInt { 1 }

    deinit {
        var next = head
        while let pointer = UnsafeRawPointer(bitPattern: next), next != Self.end {
            let message = Unmanaged<BLIPMessage>.fromOpaque(pointer).takeRetainedValue()
            next = UInt(bitPattern: message.link)
            message.link = nil
        }
    }

    @inline(__always)
    var isEmpty: Bool { count == 0 }

    @inline(__always)
    mutating func push(_ message: consuming BLIPMessage) {
        guard message.link == nil else { return }
        message.link = UnsafeRawPointer(bitPattern: head)
        head = UInt(bitPattern: Unmanaged.passRetained(consume message).toOpaque())
        count &+= 1
    }

    @inline(__always)
    mutating func pop() -> BLIPMessage? {
        guard head != Self.end, let pointer = UnsafeRawPointer(bitPattern: head) else { return nil }
        let message = Unmanaged<BLIPMessage>.fromOpaque(pointer).takeRetainedValue()
        head = UInt(bitPattern: message.link)
        message.link = nil
        count &-= 1
        return message
    }
}
