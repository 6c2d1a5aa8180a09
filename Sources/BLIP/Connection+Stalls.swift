import BLIPProtocol
import CBLIP
import Transport

extension Connection {
    /// Begins to look after reading and writing, if the options say so.
    func startStallWatch() {
        guard configuration.readTimeout > 0 || configuration.writeTimeout > 0 else { return }
        stalls = StallWatch(
            reading: configuration.readTimeout, writing: configuration.writeTimeout, now: loop.refreshNow())
    }

    /// Looks whether bytes move; may end the connection.
    func checkStalls(_ stalls: StallWatch, _ now: UInt64) {
        stalls.next = now &+ stalls.interval
        guard let stream else { return }
        let engine = session?.engine
        let isReceiving = !isReadingPaused && engine?.unfinishedIncoming ?? 0 > 0
        let received = stream.bytesReceived
        if let elapsed = stalls.reading.stall(isUnderWay: isReceiving, mark: (received, 0), now: now) {
            let more = askForTime(isWriting: false, elapsed, received)
            guard phase == .open else { return }
            if more <= 0 { return endStalled("Nothing of an incomplete message came", elapsed) }
            stalls.reading.extra = elapsed &- stalls.reading.timeout &+ nanoseconds(more)
        }
        let pending = stream.bytesPending
        let isSending = pending > 0 || engine?.hasOutput ?? false
        if let elapsed = stalls.writing.stall(isUnderWay: isSending, mark: (stream.bytesSent, pending), now: now) {
            let more = askForTime(isWriting: true, elapsed, stream.bytesSent)
            guard phase == .open else { return }
            if more <= 0 { return endStalled("The peer took nothing of what is to be sent", elapsed) }
            stalls.writing.extra = elapsed &- stalls.writing.timeout &+ nanoseconds(more)
        }
    }

    /// How many milliseconds the program grants.
    private func askForTime(isWriting: Bool, _ elapsed: UInt64, _ bytes: UInt64) -> Int64 {
        guard let handler = settings.timeout, let function = handler.function else { return 0 }
        return function(handle, isWriting, Int64(clamping: elapsed / 1_000_000), bytes, handler.context)
    }

    private func endStalled(_ what: String, _ elapsed: UInt64) {
        finish(Failure(BLIP_ERROR_TIMEOUT, "\(what) for \(elapsed / 1_000_000) ms."))
    }
}
