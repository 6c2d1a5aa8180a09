#if canImport(Glibc)
    import Glibc
#elseif canImport(Musl)
    import Musl
#endif

/// Where the bytes of a message end, as far as one frame is concerned.
private enum Progress {
    /// These are the last.
    case last
    /// There are more.
    case more
    /// A source has no more now; it may turn out that these were the last.
    case wait
    case failed
}

extension Engine {
    /// Writes the next frame at the buffer's start: acknowledgements first, then what the outbox says.
    ///
    /// - Parameter buffer: at least `Limits.outgoingFrame` + 64 bytes; with less, frames are smaller.
    public func nextFrame(into buffer: UnsafeMutableRawBufferPointer) -> OutgoingFrame {
        nextFrame(into: buffer, size: nil)
    }

    /// - Parameter size: the largest frame, if not the one that the rules say.
    @inline(__always)
    func nextFrame(into buffer: UnsafeMutableRawBufferPointer, size: Int?) -> OutgoingFrame {
        let s = state
        guard let base = buffer.baseAddress, buffer.count >= 64 else { return OutgoingFrame(count: 0) }
        if !s.pointee.acknowledgements.isEmpty { return writeAcknowledgement(base) }
        while let reference = s.pointee.outbox.popFirstReference() {
            let m = Outbox.state(reference)
            var limit = s.pointee.limits.outgoingFrame
            if s.pointee.outbox.count > 0, s.pointee.outbox.isFirstUrgent, !m.pointee.flags.contains(.urgent) {
                limit = s.pointee.limits.smallFrame
            }
            limit = min(size ?? limit, buffer.count &- 32)
            let size = cutWhole(reference, m, base, limit)
            let message = reference.takeRetainedValue()
            if size > 0 { return OutgoingFrame(count: size, message: message, isLast: true) }
            if let frame = cut(message, base, limit) { return frame }
        }
        return OutgoingFrame(count: 0)
    }

    @inline(never)
    private func writeAcknowledgement(_ base: UnsafeMutableRawPointer) -> OutgoingFrame {
        let due = state.pointee.acknowledgements.removeFirst()
        var size = Varint.write(due.number, to: base)
        let flags: UInt8 = (due.isOfResponse ? 5 : 4) | 0x30
        base.storeBytes(of: flags, toByteOffset: size, as: UInt8.self)
        size += 1
        size += Varint.write(due.count, to: base + size)
        state.pointee.counters.framesSent &+= 1
        return OutgoingFrame(count: size)
    }

    /// The commonest case at once: a message of version 3 that is held in memory, goes uncompressed and fits one frame.
    ///
    /// - Returns: the size of the frame; 0, with nothing done, in other cases.
    @inline(__always)
    private func cutWhole(
        _ message: Unmanaged<Message>, _ m: UnsafeMutablePointer<MessageState>, _ base: UnsafeMutableRawPointer,
        _ limit: Int
    ) -> Int {
        let s = state
        guard s.pointee.version == .v3, !m.pointee.isStarted, m.pointee.sources.isEmpty,
            !m.pointee.flags.contains(.compressed)
        else { return 0 }
        let properties = m.pointee.properties.count
        let body = m.pointee.body.count
        // Both are sizes of memory: the sum cannot overflow. 16: number, flags, checksum; 5: properties length.
        guard properties &+ body &+ (2 &* Varint.maximumSize &+ 5) <= limit,
            properties <= s.pointee.limits.properties
        else { return 0 }
        let isRequest = m.pointee.kind == .request
        let number = isRequest ? s.pointee.nextNumber : m.pointee.number
        guard number <= UInt64.max >> 1 else { return 0 }

        var size = Varint.write(number, to: base)
        base.storeBytes(of: m.pointee.kind.rawValue | wireFlags(m), toByteOffset: size, as: UInt8.self)
        size &+= 1
        let payload = base + size
        var end = Varint.write(UInt64(truncatingIfNeeded: properties), to: payload)
        if properties > 0, let from = m.pointee.properties.base {
            memcpy(payload + end, from, properties)
            end &+= properties
        }
        if body > 0, let from = m.pointee.body.base {
            memcpy(payload + end, from, body)
            end &+= body
        }
        let checksum = Checksum.update(s.pointee.sendChecksum, payload, end)
        s.pointee.sendChecksum = checksum
        (payload + end).storeBytes(of: checksum.bigEndian, as: UInt32.self)

        if isRequest {
            m.pointee.number = number
            s.pointee.nextNumber = number &+ 1
            if !m.pointee.flags.contains(.noReply) {
                s.pointee.pending.insertNew(number, message.retain())
                if m.pointee.isAbandoned { s.pointee.abandonedPending += 1 }
            }
        }
        m.pointee.isStarted = true
        m.pointee.isFinished = true
        m.pointee.bodyBytesSent = UInt64(truncatingIfNeeded: body)
        m.pointee.wireSent = UInt64(truncatingIfNeeded: end &+ 4)
        s.pointee.queuedBytes &-= m.pointee.queuedBytes
        m.pointee.queuedBytes = 0
        s.pointee.counters.framesSent &+= 1
        s.pointee.counters.messagesSent &+= 1
        return size &+ end &+ 4
    }

    /// The message's flags but Compressed and MoreComing as they go on the wire of versions 2 and 3.
    @inline(__always)
    private func wireFlags(_ m: UnsafeMutablePointer<MessageState>) -> UInt8 {
        var mask = MessageFlags.urgent.rawValue
        if m.pointee.kind == .request { mask |= MessageFlags.noReply.rawValue }
        if state.pointee.version != .v3 { mask |= MessageFlags.meta.rawValue }
        return m.pointee.flags.rawValue & mask
    }

    /// Cuts one frame of a message that was taken from the outbox, and puts it where it belongs then.
    ///
    /// - Returns: nil if its source had nothing: the message waits now.
    @inline(never)
    private func cut(_ message: Message, _ base: UnsafeMutableRawPointer, _ limit: Int) -> OutgoingFrame? {
        let s = state
        let m = message.state
        let version = s.pointee.version
        let isFirst = !m.pointee.isStarted
        let isRequest = m.pointee.kind == .request
        if isFirst {
            // One control character would arrive as what it abbreviates.
            if state.pointee.version != .v3, PropertyRules.hasAbbreviation(m.pointee.properties.bytes) {
                return refuse(message, .properties)
            }
            guard prepareHead(m) else { return refuse(message, .propertiesTooLarge) }
        }
        let number = isFirst && isRequest ? s.pointee.nextNumber : m.pointee.number
        guard number <= (version == .v1 ? UInt64(UInt32.max) : UInt64.max >> 1) else {
            return fatal(message, .numbersExhausted)
        }
        var flags = m.pointee.kind.rawValue | wireFlags(m)
        let headerSize =
            version == .v1 ? Self.v1HeaderSize : Varint.size(number) + Varint.size(UInt64(flags))
        let trailer = version == .v3 ? 4 : 0
        let room = max(1, limit - headerSize - trailer)
        let payload = base + headerSize
        let bodyBefore = m.pointee.bodyBytesSent
        let headBefore = m.pointee.headSent
        var isCompressed = m.pointee.flags.contains(.compressed) && s.pointee.compressionLevel > 0
        let progress: Progress
        var size: Int

        if isCompressed, version == .v3, Self.plainRoom(room) > 0 {
            // What is deflated cannot be taken back: choose first, so much that it fits even if it does not shrink.
            let plainRoom = Self.plainRoom(room)
            var error: ProtocolError.Reason?
            (size, progress) = withUnsafeTemporaryAllocation(byteCount: plainRoom, alignment: 16) { plain in
                guard let start = plain.baseAddress else { return (0, .failed) }
                let (count, progress) = gather(m, start, plainRoom)
                guard count > 0, progress != .failed else { return (0, progress) }
                s.pointee.sendChecksum = Checksum.update(s.pointee.sendChecksum, start, count)
                guard let size = deflate(start, count, payload, room + 32) else {
                    error = .deflate
                    return (0, .failed)
                }
                return (size, progress)
            }
            if let error { return fatal(message, error) }
            // An empty frame must not be marked as compressed: deployed receivers die of it.
            if size == 0 { isCompressed = false }
        } else if isCompressed, version != .v3, !(m.pointee.body.isEmpty && m.pointee.sources.isEmpty) {
            guard let (count, result) = gatherGzip(m, payload, room) else {
                return fatal(message, .deflate)
            }
            (size, progress) = (count, result)
        } else {
            isCompressed = false
            (size, progress) = gather(m, payload, room)
            if version == .v3, progress != .failed {
                s.pointee.sendChecksum = Checksum.update(s.pointee.sendChecksum, payload, size)
            }
        }

        switch progress {
        case .failed:
            if isFirst { return refuse(message, .bodySource) }
            return fatal(message, .bodySource)
        case .wait where size == 0 && !isFirst:
            m.pointee.place = .waiting
            s.pointee.stalledMessages += 1
            return nil
        case .wait, .last, .more:
            break
        }

        let isLast = progress == .last
        if isCompressed { flags |= MessageFlags.compressed.rawValue }
        if !isLast { flags |= 0x40 }
        writeHeader(base, number, flags, headerSize + size)
        if version == .v3 {
            (payload + size).storeBytes(of: s.pointee.sendChecksum.bigEndian, as: UInt32.self)
        }
        s.pointee.counters.framesSent &+= 1
        m.pointee.wireSent &+= UInt64(size + trailer)
        let headAfter = m.pointee.headSent < 0 ? m.pointee.properties.count : m.pointee.headSent
        let headBytes = headBefore < 0 ? 0 : max(0, headAfter - headBefore)
        uncountQueued(m, isLast ? UInt64.max : m.pointee.bodyBytesSent &- bodyBefore &+ UInt64(headBytes))

        if isFirst {
            m.pointee.isStarted = true
            if isRequest {
                m.pointee.number = number
                s.pointee.nextNumber = number + 1
                if !m.pointee.flags.contains(.noReply) {
                    s.pointee.pending.insert(number, message)
                    if m.pointee.isAbandoned { s.pointee.abandonedPending += 1 }
                }
            }
        }
        let key = Self.key(number, isResponse: !isRequest)
        if isLast {
            m.pointee.isFinished = true
            if !isFirst { s.pointee.underWay.remove(key) }
            if let gzip = m.pointee.gzipOutput {
                if s.pointee.spareGzipDeflater == nil, gzip.deflater.reset() {
                    s.pointee.spareGzipDeflater = gzip.deflater
                }
                m.pointee.gzipOutput = nil
            }
            m.pointee.content.removeAll(keepingCapacity: 4096)
            s.pointee.counters.messagesSent &+= 1
        } else {
            if isFirst { s.pointee.underWay.insert(key, message) }
            let mustWait = version != .v1 && !s.pointee.isInputEnded
            if mustWait, m.pointee.wireSent &- m.pointee.wireAcknowledged >= Self.pauseThreshold {
                m.pointee.place = .paused
                s.pointee.stalledMessages += 1
                s.pointee.pausedMessages += 1
            } else {
                s.pointee.outbox.insert(message)
            }
        }
        return OutgoingFrame(count: headerSize + size + trailer, message: message, isLast: isLast)
    }

    /// Drops a message of which nothing was sent.
    private func refuse(_ message: Message, _ failure: MessageFailure) -> OutgoingFrame {
        uncountQueued(message.state, UInt64.max)
        message.state.pointee.gzipOutput = nil
        return OutgoingFrame(count: 0, message: message, failure: failure)
    }

    /// Ends the connection. `takeAll` still finds the message.
    private func fatal(_ message: Message, _ reason: ProtocolError.Reason) -> OutgoingFrame {
        if !message.state.pointee.isStarted { state.pointee.outbox.append(message) }
        return OutgoingFrame(count: 0, message: message, error: ProtocolError(reason))
    }

    func writeHeader(_ base: UnsafeMutableRawPointer, _ number: UInt64, _ flags: UInt8, _ size: Int) {
        guard state.pointee.version == .v1 else {
            let at = Varint.write(number, to: base)
            _ = Varint.write(UInt64(flags), to: base + at)
            return
        }
        // The flags of version 1 are those of the later ones one bit higher.
        let wire = UInt16(flags & 0x07) | UInt16(flags & 0xF8) << 1
        base.storeBytes(of: Self.v1Magic.bigEndian, as: UInt32.self)
        base.storeBytes(of: UInt32(truncatingIfNeeded: number).bigEndian, toByteOffset: 4, as: UInt32.self)
        base.storeBytes(of: wire.bigEndian, toByteOffset: 8, as: UInt16.self)
        base.storeBytes(of: UInt16(truncatingIfNeeded: size).bigEndian, toByteOffset: 10, as: UInt16.self)
    }

    // MARK: Gathering a frame's bytes

    /// Checks the properties' size and, in versions 1 and 2, puts their abbreviated form into `content`.
    private func prepareHead(_ m: UnsafeMutablePointer<MessageState>) -> Bool {
        guard m.pointee.properties.count <= state.pointee.limits.properties else { return false }
        m.pointee.content.removeAll(keepingCapacity: 4096)
        m.pointee.headSent = 0
        guard state.pointee.version != .v3 else { return true }
        // What was abbreviated is read from one field of the state and written to another.
        return PropertyRules.abbreviate(
            m.pointee.properties.bytes, state.pointee.version, into: &m.pointee.content)
            && (state.pointee.version != .v1 || m.pointee.content.count <= 0xFFFF)
    }

    /// Writes the rest of length field and properties as far as there is room; `headSent` becomes −1 with the last.
    private func gatherHead(
        _ m: UnsafeMutablePointer<MessageState>, _ to: UnsafeMutableRawPointer, _ room: Int
    ) -> Int {
        guard m.pointee.headSent >= 0 else { return 0 }
        let version = state.pointee.version
        let encoded = version == .v3 ? m.pointee.properties.bytes : m.pointee.content.bytes
        var field: (UInt64, UInt64) = (0, 0)
        return withUnsafeMutableBytes(of: &field) { field in
            guard let field = field.baseAddress else { return 0 }
            var fieldSize = 2
            if version == .v1 {
                field.storeBytes(of: UInt16(truncatingIfNeeded: encoded.count).bigEndian, as: UInt16.self)
            } else {
                fieldSize = Varint.write(UInt64(encoded.count), to: field)
            }
            var done = 0
            var at = m.pointee.headSent
            if at < fieldSize {
                done = min(room, fieldSize - at)
                memcpy(to, field + at, done)
                at += done
            }
            if at >= fieldSize, let from = encoded.baseAddress, at - fieldSize < encoded.count {
                let more = min(room - done, encoded.count - (at - fieldSize))
                memcpy(to + done, from + (at - fieldSize), more)
                at += more
                done += more
            }
            if at == fieldSize + encoded.count {
                m.pointee.headSent = -1
                m.pointee.content.removeAll(keepingCapacity: 4096)
            } else {
                m.pointee.headSent = at
            }
            return done
        }
    }

    /// Writes the next bytes of a message.
    private func gather(
        _ m: UnsafeMutablePointer<MessageState>, _ to: UnsafeMutableRawPointer, _ room: Int
    ) -> (Int, Progress) {
        let head = gatherHead(m, to, room)
        guard m.pointee.headSent < 0 else { return (head, .more) }
        let (count, progress) = gatherBody(m, to + head, room - head)
        return (head + count, progress)
    }

    /// Writes the next bytes of a body, before compression, and finds out whether more follow.
    private func gatherBody(
        _ m: UnsafeMutablePointer<MessageState>, _ to: UnsafeMutableRawPointer, _ room: Int
    ) -> (Int, Progress) {
        var done = 0
        if let from = m.pointee.body.base, m.pointee.bodyOffset < m.pointee.body.count {
            done = min(room, m.pointee.body.count - m.pointee.bodyOffset)
            memcpy(to, from + m.pointee.bodyOffset, done)
            m.pointee.bodyOffset += done
        }
        if let from = m.pointee.content.base, m.pointee.aheadOffset < m.pointee.content.count {
            let ahead = min(room - done, m.pointee.content.count - m.pointee.aheadOffset)
            memcpy(to + done, from + m.pointee.aheadOffset, ahead)
            m.pointee.aheadOffset += ahead
            done += ahead
            if m.pointee.aheadOffset == m.pointee.content.count {
                m.pointee.content.truncate(to: 0)
                m.pointee.aheadOffset = 0
            }
        }
        var progress = Progress.last
        if m.pointee.bodyOffset < m.pointee.body.count || m.pointee.aheadOffset < m.pointee.content.count {
            progress = .more
        } else if m.pointee.sourceIndex < m.pointee.sources.count {
            (done, progress) = gatherSources(m, to, done, room)
        }
        m.pointee.bodyBytesSent &+= UInt64(done)
        return (done, progress)
    }

    private func gatherSources(
        _ m: UnsafeMutablePointer<MessageState>, _ to: UnsafeMutableRawPointer, _ start: Int, _ room: Int
    ) -> (Int, Progress) {
        var done = start
        while m.pointee.sourceIndex < m.pointee.sources.count {
            let source = m.pointee.sources[m.pointee.sourceIndex]
            if done < room {
                switch source.read(into: UnsafeMutableRawBufferPointer(start: to + done, count: room - done)) {
                case .bytes(let count):
                    guard count > 0, count <= room - done else { return (done, .failed) }
                    done += count
                case .end(let count):
                    guard count >= 0, count <= room - done else { return (done, .failed) }
                    done += count
                    m.pointee.sourceIndex += 1
                case .wait:
                    return (done, .wait)
                case .failed:
                    return (done, .failed)
                }
                continue
            }
            // The frame is full. MoreComing may only be said if bytes remain: look, or read ahead.
            if let remaining = source.remaining {
                if remaining > 0 { return (done, .more) }
                m.pointee.sourceIndex += 1
                continue
            }
            let ahead = 4096
            guard m.pointee.content.reserve(ahead) else { return (done, .failed) }
            switch source.read(into: UnsafeMutableRawBufferPointer(rebasing: m.pointee.content.room.prefix(ahead))) {
            case .bytes(let count):
                guard count > 0, count <= ahead else { return (done, .failed) }
                m.pointee.content.didAppend(count)
                return (done, .more)
            case .end(let count):
                guard count >= 0, count <= ahead else { return (done, .failed) }
                m.pointee.content.didAppend(count)
                m.pointee.sourceIndex += 1
                if count > 0 { return (done, .more) }
            case .wait:
                return (done, .wait)
            case .failed:
                return (done, .failed)
            }
        }
        return (done, .last)
    }

    // MARK: Compression

    /// The most plain bytes whose compressed form, less its trailer, surely fits into `room` bytes.
    private static func plainRoom(_ room: Int) -> Int {
        room - room >> 10 - 32
    }

    /// Deflates one frame of version 3 to its end and cuts the trailer of the flush.
    ///
    /// - Parameter room: what may be written to; more than the frame takes, so that the flush always comes to its end.
    /// - Returns: nil if the compressor failed.
    private func deflate(
        _ from: UnsafeMutableRawPointer, _ count: Int, _ to: UnsafeMutableRawPointer, _ room: Int
    ) -> Int? {
        let deflater: Deflater
        if let made = state.pointee.deflater {
            deflater = made
        } else {
            guard let new = Deflater(level: state.pointee.compressionLevel, .raw) else { return nil }
            deflater = new
            state.pointee.deflater = new
        }
        var input = UnsafeRawBufferPointer(start: from, count: count)
        var output = UnsafeMutableRawBufferPointer(start: to, count: room)
        // Output that is full cannot be told from a flush whose trailer is missing: it must not be.
        guard deflater.deflate(&input, into: &output, .sync) == .running, input.isEmpty, !output.isEmpty else {
            return nil
        }
        let size = room - output.count
        guard size > 4, (to + size - 4).loadUnaligned(as: UInt32.self).bigEndian == 0x0000_FFFF else { return nil }
        state.pointee.counters.compressionInput &+= UInt64(count)
        state.pointee.counters.compressionOutput &+= UInt64(size - 4)
        return size - 4
    }

    /// Writes the next bytes of a message of version 1 or 2 whose body is compressed.
    ///
    /// - Returns: nil if the compressor failed.
    private func gatherGzip(
        _ m: UnsafeMutablePointer<MessageState>, _ to: UnsafeMutableRawPointer, _ room: Int
    ) -> (Int, Progress)? {
        let head = gatherHead(m, to, room)
        guard m.pointee.headSent < 0, head < room else { return (head, .more) }
        let gzip: GzipOutput
        if let made = m.pointee.gzipOutput {
            gzip = made
        } else {
            let spare = state.pointee.spareGzipDeflater
            state.pointee.spareGzipDeflater = nil
            guard let deflater = spare ?? Deflater(level: state.pointee.compressionLevel, .gzip) else {
                return nil
            }
            gzip = GzipOutput(deflater)
            m.pointee.gzipOutput = gzip
        }
        var output = UnsafeMutableRawBufferPointer(start: to + head, count: room - head)
        defer { state.pointee.counters.compressionOutput &+= UInt64(room - head - output.count) }
        while true {
            var isWaiting = false
            if gzip.offset == gzip.input.count, !gzip.isInputComplete {
                let size = 16384
                gzip.offset = 0
                gzip.input.truncate(to: 0)
                guard gzip.input.reserve(size), let start = gzip.input.base else { return nil }
                let (count, progress) = gatherBody(m, start, size)
                gzip.input.didAppend(count)
                state.pointee.counters.compressionInput &+= UInt64(max(0, count))
                if count > 0 { gzip.mustFlush = true }
                switch progress {
                case .last: gzip.isInputComplete = true
                case .more: break
                case .wait: isWaiting = count == 0
                case .failed: return (0, .failed)
                }
            }
            // A flush with nothing before it would make an empty block.
            if isWaiting, !gzip.mustFlush { return (room - output.count, .wait) }
            var input = UnsafeRawBufferPointer(rebasing: gzip.input.bytes[gzip.offset...])
            let flush: Deflater.Flush = gzip.isInputComplete ? .finish : isWaiting ? .sync : .none
            let status = gzip.deflater.deflate(&input, into: &output, flush)
            gzip.offset = gzip.input.count - input.count
            let count = room - output.count
            switch status {
            case .ended: return (count, .last)
            case .running: break
            case .failed: return nil
            }
            // The compressor has not said that it is at its end: at least the rest of the gzip trailer is to come.
            if output.isEmpty { return (count, .more) }
            if isWaiting {
                gzip.mustFlush = false
                return (count, .wait)
            }
        }
    }
}
