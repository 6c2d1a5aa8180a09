/// What a stream tells its owner; every call comes on the loop's thread, never from inside a call to the stream.
///
/// In any of these calls the stream may be closed, paused, resumed, or asked for output.
public protocol StreamDelegate: AnyObject {
    /// Bytes came: those left unconsumed before, and new ones behind them.
    ///
    /// - Parameter bytes: may be overwritten; valid during the call only.
    /// - Returns: how many bytes were consumed. The stream keeps the rest and gives it again in front of the next
    ///   bytes, or alone after `resumeReading`.
    func stream(_ stream: Stream, didReceive bytes: UnsafeMutableRawBufferPointer) -> Int

    /// Asks for bytes to send now.
    ///
    /// Called in a loop at the end of a turn after `requestOutput`, and again when the socket takes more.
    /// - Returns: how many bytes were written at the buffer's start; 0: nothing to send.
    func stream(_ stream: Stream, fill buffer: UnsafeMutableRawBufferPointer) -> Int

    /// Asks for a part of a file to send now, when `fill` had nothing; only of a stream that `sendsRegions`.
    func streamRegion(_ stream: Stream) -> StreamRegion?

    /// So many bytes of that part were sent.
    func stream(_ stream: Stream, didSendRegion count: Int)

    /// The TLS handshake is done, and the peer's certificate is accepted.
    func streamDidSecure(_ stream: Stream)

    /// The program is to judge the peer's certificate: the handshake stands still until `answerTrust`.
    func stream(_ stream: Stream, needsTrust evidence: TrustEvidence)

    /// Everything filled so far has been handed to the operating system.
    func streamDidFlush(_ stream: Stream)

    /// The peer has ended its direction in order (FIN; with TLS close_notify) and may still receive.
    ///
    /// - Parameter rest: bytes that were left unconsumed, and are dropped.
    /// - Returns: whether the stream goes on without input, until `finishOutput`, `close` or an error; false: it ends.
    func stream(_ stream: Stream, inputDidEndLeaving rest: Int) -> Bool

    /// The stream ended by itself; the last call, made once, and never after `close`.
    ///
    /// - Parameter error: nil if the peer ended the stream in order (FIN; with TLS close_notify).
    func stream(_ stream: Stream, didEnd error: TransportError?)
}

extension StreamDelegate {
    /// Who does not ask to be asked trusts nobody.
    public func stream(_ stream: Stream, needsTrust evidence: TrustEvidence) { stream.answerTrust(false) }
    /// Who does not say otherwise has nothing to send to whom nothing comes from.
    public func stream(_ stream: Stream, inputDidEndLeaving rest: Int) -> Bool { false }
    public func streamRegion(_ stream: Stream) -> StreamRegion? { nil }
    public func stream(_ stream: Stream, didSendRegion count: Int) {}
}
