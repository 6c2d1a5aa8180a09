/// Takes WebSocket frames off a contiguous buffer (RFC 6455 §5).
///
/// Overview: call `next` with all bytes that are there; it looks at the first frame, unmasks it in place and says
/// what it is and how many bytes it took. Call again behind those until it says `.incomplete`.
///
/// Function: a message in one frame is given as a pointer into the caller's buffer. Fragments are joined in a buffer of
/// the parser's own, which exists from the first fragment to the call after the last one. A length is checked against
/// `maximumMessage` before a byte of the payload is waited for, and nothing is reserved for what is merely claimed. The
/// frames of a message may have control frames between them.
///
/// Implementation: the order of the checks is that of the bytes, so that a frame cut anywhere ends in the same event as
/// the whole one. Not thread-safe: it belongs to its connection.
public struct WebSocketParser: ~Copyable {
    private enum State: UInt8 {
        /// Between two messages.
        case ready
        /// In a fragmented message.
        case text
        case binary
        /// The joined message was given out by the last call.
        case delivered
        /// The peer has sent its close frame; what follows is dropped (RFC 6455 §5.5.1).
        case closed
        case failed
    }

    private let maximumMessage: Int
    /// The mask bit that the peer's frames must have: 0x80 or 0.
    private let maskBit: UInt8
    private var state = State.ready
    private var violation = WebSocketViolation.reservedBits
    private var fragments = FragmentBuffer()

    /// Makes a parser for one connection.
    /// - Parameters:
    ///   - role: our side; it decides whether frames must be masked.
    ///   - maximumMessage: the most payload bytes of one message, all its fragments together. It bounds the memory that
    ///     a peer can make us hold: one frame of that size in the caller's buffer and one message in the parser's.
    public init(role: WebSocketRole, maximumMessage: Int) {
        self.maximumMessage = max(0, maximumMessage)
        maskBit = role == .server ? 0x80 : 0
    }

    /// Whether a fragmented message is under way.
    public var isInsideMessage: Bool { state == .text || state == .binary }

    /// Gives back the memory of a joined message that was delivered; its pointer ends with it. Without it that memory
    /// is kept until the next call of `next`.
    public mutating func releaseIdleMemory() {
        if state == .delivered {
            fragments.reset()
            state = .ready
        }
    }

    /// Looks at the frame at the start of `bytes`, unmasks it in place and says what it is.
    ///
    /// Bytes of an incomplete frame are not touched. Behind a `.failed` nothing is looked at any more.
    public mutating func next(_ bytes: UnsafeMutableRawBufferPointer) -> WebSocketEvent {
        let maskSize = Int(maskBit >> 5)
        guard bytes.count >= 2, let base = bytes.baseAddress, state == .ready,
            base.load(as: UInt8.self) == 0x82
        else { return anyFrame(bytes) }
        let second = base.load(fromByteOffset: 1, as: UInt8.self) ^ maskBit
        let header: Int
        let length: Int
        if second < 126 {
            header = 2 &+ maskSize
            length = Int(second)
        } else if second == 126, bytes.count >= 4 {
            header = 4 &+ maskSize
            length = Int(UInt16(bigEndian: base.loadUnaligned(fromByteOffset: 2, as: UInt16.self)))
            guard length >= 126 else { return anyFrame(bytes) }
        } else {
            return anyFrame(bytes)
        }
        let total = header &+ length
        guard length <= maximumMessage, bytes.count >= total else { return anyFrame(bytes) }
        let payload = base + header
        if maskSize != 0 {
            let key = base.loadUnaligned(fromByteOffset: header &- 4, as: UInt32.self)
            WebSocketFrame.mask(payload, count: length, key: key)
        }
        return .binary(UnsafeMutableRawBufferPointer(start: payload, count: length), consumed: total)
    }

    /// Every frame, with all checks.
    @inline(never)
    private mutating func anyFrame(_ bytes: UnsafeMutableRawBufferPointer) -> WebSocketEvent {
        switch state {
        case .delivered: releaseIdleMemory()
        case .closed: return bytes.isEmpty ? .incomplete(needed: 1) : .consumed(bytes.count)
        case .failed: return .failed(code: violation.code, text: violation.text)
        case .ready, .text, .binary: break
        }
        let maskSize = Int(maskBit >> 5)
        guard bytes.count >= 2, let base = bytes.baseAddress else { return .incomplete(needed: 2 + maskSize) }
        let first = base.load(as: UInt8.self)
        let second = base.load(fromByteOffset: 1, as: UInt8.self)
        guard first & 0x70 == 0 else { return fail(.reservedBits) }
        guard let opcode = WebSocketOpcode(rawValue: first & 0x0F) else { return fail(.reservedOpcode) }
        guard second & 0x80 == maskBit else { return fail(maskBit == 0 ? .masked : .unmasked) }
        let isFinal = first & 0x80 != 0
        switch opcode {
        case .close, .ping, .pong:
            guard isFinal else { return fail(.controlFragmented) }
            guard second & 0x7F <= 125 else { return fail(.controlTooLong) }
        case .continuation:
            guard isInsideMessage else { return fail(.continuationWithoutStart) }
        case .text, .binary:
            guard !isInsideMessage else { return fail(.startInsideMessage) }
        }

        var header = 2
        var length = Int(second & 0x7F)
        if length == 126 {
            header = 4
            guard bytes.count >= header else { return .incomplete(needed: header + maskSize) }
            length = Int(UInt16(bigEndian: base.loadUnaligned(fromByteOffset: 2, as: UInt16.self)))
            guard length >= 126 else { return fail(.lengthNotMinimal) }
        } else if length == 127 {
            header = 10
            guard bytes.count >= header else { return .incomplete(needed: header + maskSize) }
            let wide = UInt64(bigEndian: base.loadUnaligned(fromByteOffset: 2, as: UInt64.self))
            guard wide >> 63 == 0 else { return fail(.lengthNegative) }
            guard wide > 0xFFFF else { return fail(.lengthNotMinimal) }
            guard let narrowed = Int(exactly: wide) else { return fail(.messageTooBig) }
            length = narrowed
        }
        header += maskSize
        if opcode.rawValue < WebSocketOpcode.close.rawValue {
            // `fragments.count` never exceeds the maximum, so the difference is not negative.
            guard length <= maximumMessage - fragments.count else { return fail(.messageTooBig) }
        }
        let (total, overflow) = header.addingReportingOverflow(length)
        guard !overflow else { return fail(.messageTooBig) }
        guard bytes.count >= total else { return .incomplete(needed: total) }

        let payload = UnsafeMutableRawBufferPointer(start: base + header, count: length)
        if maskSize != 0 {
            let key = base.loadUnaligned(fromByteOffset: header - 4, as: UInt32.self)
            WebSocketFrame.mask(payload, key: key)
        }
        switch opcode {
        case .ping: return .ping(UnsafeRawBufferPointer(payload), consumed: total)
        case .pong: return .pong(UnsafeRawBufferPointer(payload), consumed: total)
        case .close: return close(UnsafeRawBufferPointer(payload), consumed: total)
        case .binary where isFinal: return .binary(payload, consumed: total)
        case .text where isFinal:
            guard UTF8Validator.isValid(UnsafeRawBufferPointer(payload)) else { return fail(.textEncoding) }
            return .text(payload, consumed: total)
        case .text: state = .text
        case .binary: state = .binary
        case .continuation: break
        }
        return fragment(UnsafeRawBufferPointer(payload), isFinal: isFinal, consumed: total)
    }

    private mutating func fragment(
        _ payload: UnsafeRawBufferPointer, isFinal: Bool, consumed: Int
    ) -> WebSocketEvent {
        let isText = state == .text
        if isText {
            guard fragments.validator.consume(payload), !isFinal || fragments.validator.isComplete else {
                return fail(.textEncoding)
            }
        }
        guard fragments.append(payload, maximum: maximumMessage) else { return fail(.noMemory) }
        guard isFinal else { return .consumed(consumed) }
        state = .delivered
        return isText ? .text(fragments.bytes, consumed: consumed) : .binary(fragments.bytes, consumed: consumed)
    }

    private mutating func close(_ payload: UnsafeRawBufferPointer, consumed: Int) -> WebSocketEvent {
        guard payload.count != 1 else { return fail(.closePayload) }
        var code: UInt16?
        var reason = payload
        if payload.count >= 2, let base = payload.baseAddress {
            let value = UInt16(bigEndian: base.loadUnaligned(as: UInt16.self))
            guard WebSocketFrame.isValidCloseCode(value) else { return fail(.closeCode) }
            reason = UnsafeRawBufferPointer(start: base + 2, count: payload.count - 2)
            guard UTF8Validator.isValid(reason) else { return fail(.closeReason) }
            code = value
        }
        state = .closed
        fragments.reset()
        return .close(code: code, reason: reason, consumed: consumed)
    }

    private mutating func fail(_ violation: WebSocketViolation) -> WebSocketEvent {
        state = .failed
        self.violation = violation
        fragments.reset()
        return .failed(code: violation.code, text: violation.text)
    }
}
