import CBLIP

/// One request on its way, and its reply.
///
/// Callbacks come on the library's thread; the program's own thread waits here.
final class Exchange: @unchecked Sendable {
    private let connection: Connection
    private let request: OpaquePointer
    private let patience: UInt64
    private let progress: ProgressBar
    private(set) var startTime: UInt64 = 0

    // Guarded by the monitor.
    private let monitor = Monitor()
    private var outcome: blip_status?
    private var response: OpaquePointer?
    private var lastMove: UInt64 = 0
    private var bytesSent: UInt64 = 0

    init(_ connection: Connection, _ request: OpaquePointer, patience: Int64, total: UInt64?) {
        self.connection = connection
        self.request = request
        self.patience = UInt64(patience) * 1_000_000
        progress = ProgressBar(label: "sending", total: total)
    }

    func sendWithoutReply() throws(Failure) {
        watchProgress()
        try start()
        let status = waitForOutcome()
        progress.finish()
        guard status >= 0 else { throw failure(status) }
    }

    /// Sends and waits until the reply begins.
    func send() throws(Failure) -> Reply {
        watchProgress()
        try start()
        let status = waitForOutcome()
        progress.finish()
        let response = monitor.locked { self.response }
        guard status >= 0, let response else { throw failure(status) }
        return Reply(response)
    }

    /// Takes the reply's body as it comes.
    func receive(_ reply: Reply, into sink: ReplySink) throws(Failure) {
        // An error reply comes whole, although a stream was asked for.
        if reply.isError, let body = Library.slice({ blip_message_body(reply.handle, $0) }) {
            return try sink.take(body.bytes)
        }
        let buffer = UnsafeMutableRawBufferPointer.allocate(byteCount: 1 << 18, alignment: 16)
        defer { buffer.deallocate() }
        let bar = ProgressBar(label: "receiving", total: nil, isShown: !sink.writesToTerminal)
        defer { bar.finish() }
        var total: UInt64 = 0
        while true {
            var count = 0
            let status = blip_message_read_wait(
                reply.handle, buffer.baseAddress, buffer.count, Int64(patience / 1_000_000), &count)
            guard status >= 0 else {
                bar.finish()
                throw failure(status, " after \(Number.bytes(total)) of the reply\(sink.remark)")
            }
            total += UInt64(count)
            try sink.take(UnsafeRawBufferPointer(rebasing: buffer[..<count]))
            bar.update(total)
            if status == BLIP_DATA_END { return }
        }
    }

    private func watchProgress() {
        let context = Unmanaged.passRetained(self).toOpaque()
        _ = blip_message_set_progress_callback(
            request,
            { _, sent, context in
                guard let context else { return }
                Unmanaged<Exchange>.fromOpaque(context).takeUnretainedValue().moved(sent)
            }, context, Self.release)
    }

    private func start() throws(Failure) {
        startTime = Clock.now
        monitor.locked { lastMove = startTime }
        let context = Unmanaged.passRetained(self).toOpaque()
        var flags: UInt32 = 0
        _ = blip_message_flags(request, &flags)
        if flags & BLIP_FLAG_NO_REPLY != 0 {
            _ = blip_message_set_sent_callback(
                request,
                { _, status, context in
                    guard let context else { return }
                    Unmanaged<Exchange>.fromOpaque(context).takeUnretainedValue().completed(nil, status)
                }, context, Self.release)
            let status = blip_connection_send(connection.handle, request, nil, nil, nil)
            guard status >= 0 else { throw failure(status) }
            return
        }
        let status = blip_connection_send(
            connection.handle, request,
            { _, _, response, status, context in
                guard let context else { return }
                Unmanaged<Exchange>.fromOpaque(context).takeUnretainedValue().completed(response, status)
            }, context, Self.release)
        guard status >= 0 else { throw failure(status) }
    }

    private static let release: @convention(c) (UnsafeMutableRawPointer?) -> Void = { context in
        if let context { Unmanaged<Exchange>.fromOpaque(context).release() }
    }

    private func moved(_ sent: UInt64) {
        monitor.locked {
            lastMove = Clock.now
            bytesSent = sent
            monitor.signal()
        }
    }

    private func completed(_ response: OpaquePointer?, _ status: blip_status) {
        monitor.locked {
            self.response = response.flatMap { blip_message_retain($0) }
            outcome = status
            monitor.signal()
        }
    }

    private func waitForOutcome() -> blip_status {
        while true {
            let (outcome, sent) = monitor.locked {
                let deadline = lastMove + patience
                if self.outcome == nil && Clock.now < deadline { monitor.wait(until: deadline) }
                if self.outcome == nil && Clock.now >= lastMove + patience { self.outcome = BLIP_ERROR_TIMEOUT }
                return (self.outcome, bytesSent)
            }
            if let outcome { return outcome }
            progress.update(sent)
        }
    }

    private func failure(_ status: blip_status, _ when: String = "") -> Failure {
        switch status {
        case BLIP_ERROR_TIMEOUT:
            let seconds = Number.fixed(Double(patience) / 1e9, patience % 1_000_000_000 == 0 ? 0 : 3)
            return .connection(
                "\(Terminal.escape(connection.url)) has not answered for \(seconds) s\(when) (give it more time with "
                    + "--timeout)", status: status)
        case BLIP_ERROR_LIMIT:
            return .usage("the request cannot be sent: \(Library.message(of: status))\(when)", status: status)
        case BLIP_ERROR_BODY, BLIP_ERROR_PROPERTIES:
            let why = Library.message(of: status)
            return .connection(
                "the request to \(Terminal.escape(connection.url)) failed\(when): \(why)", status: status)
        default:
            return connection.lost(status, when)
        }
    }
}
