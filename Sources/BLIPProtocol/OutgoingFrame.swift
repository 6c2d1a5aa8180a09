/// What `Engine.nextFrame` wrote.
public struct OutgoingFrame {
    /// Bytes written at the buffer's start. 0: nothing to send now, unless `failure` is set.
    public var count: Int
    /// The message that the frame is of; nil for an acknowledgement.
    public var message: Message?
    /// True if it is the message's last frame: the engine is done with sending it. A request that wants a reply stays
    /// with the engine until its response is complete.
    public var isLast: Bool
    /// `message` cannot be sent, because of its properties or because its body source failed: it has left the queue, no
    /// byte of it was sent, the connection is fine. Call `nextFrame` again.
    public var failure: MessageFailure?
    /// Fatal: close the connection. Nothing was written.
    public var error: ProtocolError?

    @inline(__always)
    init(
        count: Int, message: Message? = nil, isLast: Bool = false, failure: MessageFailure? = nil,
        error: ProtocolError? = nil
    ) {
        self.count = count
        self.message = message
        self.isLast = isLast
        self.failure = failure
        self.error = error
    }
}
