import HTTPService
import Transport

/// A connection to a listener that speaks HTTP and no BLIP: a browser that looks at pages or files.
///
/// It takes the byte stream over from the connection that has read the first request. Loop thread only.
final class HTTPConnection: StreamDelegate {
    /// Without any progress for so long, a request or an answer is given up; an idle connection, too.
    private static let patience: UInt64 = 60_000_000_000

    private let context: LoopContext
    private let listener: Listener
    private let stream: Transport.Stream
    private let session: HTTPSession
    private let timer = PageTimer()
    private var progress: UInt64 = 0
    private var isEnding = false
    private var hasEnded = false
    private var hasInputEnded = false

    init(context: LoopContext, listener: Listener, stream: Transport.Stream, session: HTTPSession) {
        self.context = context
        self.listener = listener
        self.stream = stream
        self.session = session
    }

    func begin() {
        context.add(self)
        listener.pageDidBegin()
        timer.page = self
        // A program's own thread may not have SIGPIPE blocked.
        stream.sendsRegions = !stream.isSecure && listener.runtime.threadCount > 0
        stream.handOver(to: self)
        stream.resumeReading()
        stream.requestOutput()
        rearm()
    }

    func belongs(to listener: Listener?) -> Bool { self.listener === listener }

    private func rearm() { context.loop.schedule(timer, at: context.loop.refreshNow() &+ Self.patience) }

    func timerDidFire() {
        let pending = UInt64(truncatingIfNeeded: stream.bytesPending)
        // What waits for the socket has not made its way.
        let now = stream.bytesSent &+ stream.bytesReceived &- pending
        guard now != progress, !isEnding || pending > 0 else { return end() }
        progress = now
        rearm()
    }

    /// Gives up at once.
    func end() {
        stream.close()
        finish()
    }

    private func finish() {
        guard !hasEnded else { return }
        hasEnded = true
        session.abandon()
        context.loop.cancel(timer)
        timer.page = nil
        context.remove(self)
        listener.connectionDidEnd()
        listener.runtime.objectDidEnd()
    }

    // MARK: Stream

    func stream(_ stream: Transport.Stream, didReceive bytes: UnsafeMutableRawBufferPointer) -> Int {
        guard !isEnding else { return bytes.count }
        let used = session.receive(UnsafeRawBufferPointer(bytes))
        // What comes behind a request waits until that is answered.
        if used < bytes.count, session.hasOutput { stream.pauseReading() }
        if session.hasOutput || session.isFinished { stream.requestOutput() }
        return used
    }

    func stream(_ stream: Transport.Stream, fill buffer: UnsafeMutableRawBufferPointer) -> Int {
        let count = session.fill(buffer, usingRegions: stream.sendsRegions)
        askAgain()
        return count
    }

    /// More is to be sent, or everything is handed over.
    private func askAgain() {
        if session.hasOutput { stream.requestOutput() } else { answered() }
    }

    func streamRegion(_ stream: Transport.Stream) -> StreamRegion? {
        guard let region = session.region, let offset = Int64(exactly: region.offset) else { return nil }
        return StreamRegion(
            descriptor: region.descriptor, offset: offset, count: Int(clamping: region.count))
    }

    func stream(_ stream: Transport.Stream, didSendRegion count: Int) {
        session.advance(count)
        askAgain()
    }

    /// Everything is handed over: the next request, or the end.
    private func answered() {
        if session.isFinished || hasInputEnded {
            guard !isEnding else { return }
            isEnding = true
            stream.finishOutput()
            stream.resumeReading()
            linger()
        } else {
            stream.resumeReading()
        }
    }

    /// What the client still sends is read for a while, so that it gets the answer and no reset.
    private func linger() { context.loop.schedule(timer, at: context.loop.refreshNow() &+ 2_000_000_000) }

    /// Who sends no more once everything is asked still gets all answers.
    func stream(_ stream: Transport.Stream, inputDidEndLeaving rest: Int) -> Bool {
        guard session.hasOutput || stream.bytesPending > 0 else { return false }
        hasInputEnded = true
        if !session.hasOutput { answered() }
        return true
    }

    func streamDidSecure(_ stream: Transport.Stream) {}
    func streamDidFlush(_ stream: Transport.Stream) { if isEnding { linger() } }

    func stream(_ stream: Transport.Stream, didEnd error: TransportError?) { finish() }
}
