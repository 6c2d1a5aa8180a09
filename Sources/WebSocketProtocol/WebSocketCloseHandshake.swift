/// The closing handshake (RFC 6455 §5.5.1, §7) as a value: inputs return what the owner has to do. Times are monotonic
/// nanoseconds.
public struct WebSocketCloseHandshake: Sendable, Equatable {
    /// What the owner has to do next.
    public enum Action: Sendable, Equatable {
        /// Nothing but wait.
        case none
        /// Send this side's close frame as the last frame, then call `didSend`.
        case sendClose(code: UInt16?)
        /// Finish the output (half-close) and wait for the peer's end.
        case finishOutput
        /// Drop the transport now.
        case drop
    }
    public internal(set) var sentCode: UInt16?
    public internal(set) var receivedCode: UInt16?
    /// When to call `timeOut`; nil: nothing to wait for.
    public internal(set) var deadline: UInt64?
    /// Whether messages and pings may still be sent.
    public var maySend: Bool { true }
    /// Both close frames have gone their way, or nothing more will.
    public var isEnded: Bool { false }

    /// `timeout`: nanoseconds for the peer to answer, and again for it to end the transport.
    public init(role: WebSocketRole, timeout: UInt64) {}
    /// This side wants to close.
    public mutating func close(code: UInt16?, now: UInt64) -> Action { .none }
    /// The peer's close frame came.
    public mutating func received(code: UInt16?, now: UInt64) -> Action { .none }
    /// This side's close frame was handed to the transport.
    public mutating func didSend(now: UInt64) -> Action { .none }
    /// The transport ended.
    public mutating func transportEnded() -> Action { .none }
    /// The deadline may have come. Calls that come too early are harmless.
    public mutating func timeOut(now: UInt64) -> Action { .none }
}
