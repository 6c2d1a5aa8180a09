import BLIPProtocol
import CBLIP
import Synchronization
import Transport

extension BLIPMessage {
    // MARK: Sending

    /// Replaces the body by a copy of `slice`.
    @inline(__always)
    public func setBody(_ slice: blip_slice) -> blip_status {
        guard !isFrozen else { return setInterceptedBody(slice) }
        guard let bytes = slice.bytes else { return BLIP_ERROR_ARGUMENT }
        return withDetached(bytes, from: body) { bytes in
            body.removeAll(keepingCapacity: 4096)
            if !sources.isEmpty { sources = [] }
            return body.append(bytes) ? BLIP_OK : BLIP_ERROR_RESOURCES
        }
    }

    /// Replaces the body of a message that an interceptor looks at, if it is in memory as a whole.
    private func setInterceptedBody(_ slice: blip_slice) -> blip_status {
        guard !isFixed else { return BLIP_ERROR_IMMUTABLE }
        guard let bytes = slice.bytes else { return BLIP_ERROR_ARGUMENT }
        guard isIncoming else {
            guard sources.isEmpty else { return BLIP_ERROR_IMMUTABLE }
            return withDetached(bytes, from: body) { bytes in
                body.removeAll(keepingCapacity: 4096)
                return body.append(bytes) ? BLIP_OK : BLIP_ERROR_RESOURCES
            }
        }
        guard isComplete, !isBodyStreamed.load(ordering: .relaxed) else { return BLIP_ERROR_IMMUTABLE }
        return replaceIncomingBody(bytes) ? BLIP_OK : BLIP_ERROR_RESOURCES
    }

    public func appendBody(_ slice: blip_slice) -> blip_status {
        guard !isFrozen else { return BLIP_ERROR_IMMUTABLE }
        guard let bytes = slice.bytes else { return BLIP_ERROR_ARGUMENT }
        guard !bytes.isEmpty else { return BLIP_OK }
        guard sources.isEmpty else {
            sources.append(CopiedSource(bytes))
            return BLIP_OK
        }
        return withDetached(bytes, from: body) { body.append($0) ? BLIP_OK : BLIP_ERROR_RESOURCES }
    }

    public func appendBorrowed(_ slice: blip_slice, _ holder: Handler<Never>) -> blip_status {
        guard !isFrozen else { return BLIP_ERROR_IMMUTABLE }
        guard let bytes = slice.bytes else { return BLIP_ERROR_ARGUMENT }
        sources.append(BorrowedSource(bytes, holder))
        return BLIP_OK
    }

    public func appendFile(_ descriptor: Int32, offset: UInt64, length: UInt64, closes: Bool) -> blip_status {
        guard !isFrozen else { return BLIP_ERROR_IMMUTABLE }
        guard let source = FileSource(descriptor, offset: offset, length: length, closes: closes) else {
            return BLIP_ERROR_FILE
        }
        sources.append(source)
        return BLIP_OK
    }

    public func appendStream(_ handler: Handler<blip_body_fn>) -> blip_status {
        guard !isFrozen else { return BLIP_ERROR_IMMUTABLE }
        guard handler.function != nil else { return BLIP_ERROR_ARGUMENT }
        sources.append(PulledSource(handler))
        return BLIP_OK
    }

    /// A pulled body has bytes again; any thread.
    public func resumeBody() -> blip_status {
        guard isFrozen, connection != nil || existingExtras?.carrier != nil else { return BLIP_ERROR_STATE }
        place?.resume(self)
        return BLIP_OK
    }

    /// Appends a part that the program pushes; one a message.
    public func appendPushed() -> blip_status {
        guard !isFrozen else { return BLIP_ERROR_IMMUTABLE }
        guard extras.pushed == nil else { return BLIP_ERROR_STATE }
        let source = PushedSource()
        extras.pushed = source
        sources.append(source)
        return BLIP_OK
    }

    /// More of the pushed part; any thread, before and after sending.
    public func pushBody(_ slice: blip_slice, isLast: Bool) -> blip_status {
        guard let source = existingExtras?.pushed, !isIncoming else { return BLIP_ERROR_STATE }
        guard let bytes = slice.bytes else { return BLIP_ERROR_ARGUMENT }
        if isFrozen, sentStatus.load(ordering: .acquiring) != Self.unknown { return BLIP_ERROR_CLOSED }
        let (status, resume) = source.push(bytes, isLast: isLast)
        if resume { place?.resume(self) }
        return status
    }

    public func setText(_ text: blip_slice) -> blip_status {
        text.text { _ in
            let status = setContentType(("text/plain; charset=UTF-8" as StaticString).bytes)
            return status == BLIP_OK ? setBody(text) : status
        }
    }

    /// Sets a JSON body; above 100 bytes it is sent compressed.
    public func setJSON(_ json: blip_slice) -> blip_status {
        json.text { bytes in
            var status = setContentType(("application/json" as StaticString).bytes)
            if status == BLIP_OK { status = setBody(json) }
            if status == BLIP_OK, bytes.count > 100 { status = setFlag(BLIP_FLAG_COMPRESSED, true) }
            return status
        }
    }

    public func setSent(_ handler: Handler<blip_sent_fn>) -> blip_status {
        guard !isFrozen else { return BLIP_ERROR_IMMUTABLE }
        extras.sent = handler
        return BLIP_OK
    }

    public func setProgress(_ handler: Handler<blip_progress_fn>) -> blip_status {
        guard !isFrozen else { return BLIP_ERROR_IMMUTABLE }
        extras.progress = handler
        return BLIP_OK
    }

    public var bytesSent: UInt64 { publishedBytes.load(ordering: .relaxed) }
    public var isSentNow: Bool { sentStatus.load(ordering: .acquiring) == BLIP_OK }

    public var currentNumber: UInt64 {
        isIncoming ? number : publishedNumber.load(ordering: .relaxed)
    }

    public func waitSent(timeout: Int64) -> blip_status {
        guard EventLoop.current == nil else { return BLIP_ERROR_WOULD_DEADLOCK }
        let carrier = existingExtras?.carrier
        guard !isIncoming, isFrozen, let context = carrier?.context ?? connection?.context else {
            return BLIP_ERROR_STATE
        }
        let waiter = Waiter()
        extras.shared.withLock { $0.sentWaiters.append(waiter) }
        // It may have been sent, or given up, without having seen the waiter.
        let known = sentStatus.load(ordering: .acquiring)
        if known != Self.unknown { return known }
        // A carried request has its extras from the start, and is watched therefore.
        if carrier == nil { connection?.noteWaiter(of: self) }
        if let result = waiter.wait(timeout, in: context) { return result.status }
        extras.shared.withLock { $0.sentWaiters.removeAll { $0 === waiter } }
        return BLIP_ERROR_TIMEOUT
    }

    // MARK: Receiving

    public var isWholeNow: Bool {
        guard isIncoming else { return true }
        // Who has read the end of a streamed body must see that it is whole: its own state tells, behind its lock.
        if isBodyStreamed.load(ordering: .acquiring), let incoming = existingExtras?.incoming {
            return incoming.status == BLIP_DATA_END
        }
        return isWhole.load(ordering: .acquiring)
    }

    public var bodySize: UInt64 {
        guard isIncoming else { return UInt64(knownSize - properties.count) }
        return isBodyStreamed.load(ordering: .acquiring)
            ? publishedBytes.load(ordering: .acquiring) : bodyBytesReceived
    }

    /// The whole body; of a streamed message what was left unread.
    public func wholeBody(_ target: UnsafeMutablePointer<blip_slice>?) -> blip_status {
        guard let target else { return BLIP_ERROR_ARGUMENT }
        guard isIncoming else {
            guard sources.isEmpty else { return BLIP_ERROR_UNSUPPORTED }
            target.pointee = blip_slice(body.bytes)
            return BLIP_OK
        }
        guard isWholeNow else { return BLIP_ERROR_NOT_COMPLETE }
        if let incoming = existingExtras?.incoming, isBodyStreamed.load(ordering: .acquiring) {
            target.pointee = incoming.rest
        } else {
            target.pointee = blip_slice(incomingBody)
        }
        return BLIP_OK
    }

    /// A request's response shall be delivered at its properties.
    public func setStreamed(_ isStreamed: Bool) -> blip_status {
        guard !isFrozen else { return BLIP_ERROR_IMMUTABLE }
        guard kind == .request else { return BLIP_ERROR_ARGUMENT }
        extras.isResponseStreamed = isStreamed
        return BLIP_OK
    }

    public func setData(_ handler: Handler<blip_data_fn>) -> blip_status {
        guard isIncoming, let connection, isBodyStreamed.load(ordering: .acquiring) else { return BLIP_ERROR_STATE }
        connection.perform { connection.setData(self, handler) }
        return BLIP_OK
    }

    /// No data callback or event until reading is resumed; what comes is held, and its sender slows down.
    public func pauseReading() -> blip_status {
        guard isIncoming, isBodyStreamed.load(ordering: .acquiring), let incoming = existingExtras?.incoming else {
            return BLIP_ERROR_STATE
        }
        incoming.setPaused(true)
        return BLIP_OK
    }

    public func resumeReading() -> blip_status {
        guard isIncoming, let connection, isBodyStreamed.load(ordering: .acquiring),
            let incoming = existingExtras?.incoming
        else { return BLIP_ERROR_STATE }
        guard connection.state != BLIP_STATE_CLOSED else { return BLIP_ERROR_CLOSED }
        guard incoming.isPaused else { return BLIP_OK }
        incoming.setPaused(false)
        connection.resumeReading(of: self)
        return BLIP_OK
    }

    public func read(
        _ buffer: UnsafeMutableRawPointer?, _ capacity: Int, _ size: UnsafeMutablePointer<Int>?
    ) -> blip_status {
        guard let buffer, let size, capacity > 0 else { return BLIP_ERROR_ARGUMENT }
        guard isIncoming, let connection, let incoming = existingExtras?.incoming else { return BLIP_ERROR_STATE }
        let (status, count, mustPost) = incoming.read(
            into: UnsafeMutableRawBufferPointer(start: buffer, count: capacity))
        if mustPost { connection.postAcknowledgement(self) }
        size.pointee = count
        return status
    }

    public func readWaiting(
        _ buffer: UnsafeMutableRawPointer?, _ capacity: Int, _ timeout: Int64, _ size: UnsafeMutablePointer<Int>?
    ) -> blip_status {
        guard EventLoop.current == nil else { return BLIP_ERROR_WOULD_DEADLOCK }
        let start = monotonicNanoseconds()
        while true {
            let status = read(buffer, capacity, size)
            guard status == BLIP_AGAIN, let connection, let incoming = existingExtras?.incoming else { return status }
            guard let waiter = incoming.wait() else { continue }
            var left = timeout
            if timeout >= 0 {
                left = timeout - Int64((monotonicNanoseconds() - start) / 1_000_000)
                if left < 0 { return BLIP_ERROR_TIMEOUT }
            }
            if waiter.wait(left, in: connection.context) == nil { return BLIP_ERROR_TIMEOUT }
        }
    }
}
