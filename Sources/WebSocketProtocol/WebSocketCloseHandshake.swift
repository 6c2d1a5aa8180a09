/// The closing handshake (RFC 6455 §5.5.1, §7) as a value: inputs return what the owner has to do.
///
/// Times are monotonic nanoseconds. When both close frames have gone their way the server ends the transport and the
/// client waits for that (RFC 6455 §7.1.1); each wait is bounded by the timeout.
public struct WebSocketCloseHandshake: Sendable, Equatable {
    /// What the owner has to do next.
    public enum Action: Sendable, Equatable {
        /// Nothing but wait.
        case none
        /// Send this side's close frame as its last frame, then call `didSend`. Nil: a frame without a code.
        case sendClose(code: UInt16?)
        /// Finish the output (half-close) and wait for the peer's end.
        case finishOutput
        /// Drop the transport now.
        case drop
    }

    /// The code in the peer's frame; 1005 if the frame had none; nil: no frame came.
    public private(set) var receivedCode: UInt16?
    /// The code in our frame; 1005 if it has none; nil: we have not begun to close.
    public private(set) var sentCode: UInt16?
    /// When to call `timeOut`; nil: there is nothing to wait for.
    public private(set) var deadline: UInt64?
    /// The transport has ended or is to be dropped.
    public private(set) var isEnded = false

    private let role: WebSocketRole
    private let timeout: UInt64
    private var isSent = false
    private var isFailed = false

    /// `timeout`: nanoseconds for the peer to answer, and again for it to end the transport.
    public init(role: WebSocketRole, timeout: UInt64) {
        self.role = role
        self.timeout = timeout
    }

    /// Whether messages and pings may still be sent: neither side has begun to close.
    public var maySend: Bool { sentCode == nil && !isEnded }
    /// Both sides have said goodbye (RFC 6455 §7.1.4).
    public var isClean: Bool { isSent && receivedCode != nil && !isFailed }

    /// This side wants to close. Later calls change nothing.
    public mutating func close(code: UInt16?, now: UInt64) -> Action {
        guard maySend else { return .none }
        return begin(code: code, now: now)
    }

    /// The peer broke the protocol: says so and does not wait for its answer (RFC 6455 §7.1.7).
    public mutating func fail(code: UInt16, now: UInt64) -> Action {
        guard !isEnded, !isFailed else { return .none }
        isFailed = true
        if sentCode == nil { return begin(code: code, now: now) }
        return isSent ? finish(now: now) : .none
    }

    /// The peer's close frame came.
    public mutating func received(code: UInt16?, now: UInt64) -> Action {
        guard receivedCode == nil, !isEnded else { return .none }
        receivedCode = code ?? 1005
        if sentCode == nil { return begin(code: code, now: now) }
        return isSent ? finish(now: now) : .none
    }

    /// This side's close frame was handed to the transport.
    public mutating func didSend(now: UInt64) -> Action {
        guard sentCode != nil, !isSent, !isEnded else { return .none }
        isSent = true
        return receivedCode != nil || isFailed ? finish(now: now) : .none
    }

    /// The transport ended, whoever ended it.
    public mutating func transportEnded() {
        isEnded = true
        deadline = nil
    }

    /// The deadline may have come. Calls that come too early or too often are harmless.
    public mutating func timeOut(now: UInt64) -> Action {
        guard let deadline, now >= deadline else { return .none }
        transportEnded()
        return .drop
    }

    private mutating func begin(code: UInt16?, now: UInt64) -> Action {
        sentCode = code ?? 1005
        extend(now)
        return .sendClose(code: code)
    }

    private mutating func finish(now: UInt64) -> Action {
        extend(now)
        return role == .server || isFailed ? .finishOutput : .none
    }

    private mutating func extend(_ now: UInt64) {
        let (sum, overflow) = now.addingReportingOverflow(timeout)
        deadline = overflow ? .max : sum
    }
}
