import CBLIP

/// What carries the frames of a session: how they lie in what the transport brings, what else goes there, and how an end
/// is said. `WebSocketLink` is one.
///
/// Calls come once for each read or write of the transport, not once for each frame, on the loop's thread. A link hands
/// frames to the engine, what they lead to back to the connection (`handle`, `frameDidLeave`), and keeps no reference to
/// either.
class Link {
    /// Bytes inflated in one turn before other connections come first.
    static let inflationBudget: UInt64 = 1 << 20

    /// Takes what has come.
    ///
    /// - Parameter start: how many of the bytes were consumed before.
    /// - Returns: how many bytes are consumed in all.
    func receive(
        _ bytes: UnsafeMutableRawBufferPointer, from start: Int, _ session: Session, _ connection: Connection
    ) -> Int { bytes.count }

    /// Writes what waits: how many bytes.
    func fill(_ buffer: UnsafeMutableRawBufferPointer, _ session: Session, _ connection: Connection) -> Int { 0 }

    /// All that was written has been handed to the operating system.
    func didFlush(_ connection: Connection) {}

    /// This side ends the connection, which is in phase `closing` now. Leads to `finish`, at the latest by `timeOut`.
    func close(code: UInt16, reason: [UInt8], _ connection: Connection) { connection.finish(connection.failure) }

    /// The same because the peer broke a protocol or a limit.
    func fail(code: UInt16, text: String, _ connection: Connection) { connection.finish(connection.failure) }

    /// The timer of a connection in phase `closing` has fired.
    func timeOut(now: UInt64, _ connection: Connection) { connection.finish(connection.failure) }

    // MARK: Pings

    /// Queues a ping; the handler gets the round trip, or why there is none.
    func ping(_ handler: Handler<blip_pong_fn>?, deadline: UInt64, now: UInt64, _ connection: Connection) {}

    /// When the next ping that waits for its answer is too late.
    var pingDeadline: UInt64 { .max }

    /// Ends the pings that are too late; with `now` at its maximum, all.
    func endPings(_ status: blip_status, now: UInt64, _ connection: Connection) {}
}
