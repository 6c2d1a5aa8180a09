import CBLIP

/// Keeps a number of requests under way until enough have been answered.
///
/// Everything but `wait` happens in callbacks of one connection, thus on one thread, without a lock.
final class BenchRun: @unchecked Sendable {
    private let body: BenchBody
    private let profile: String
    private let count: Int
    private let isCompressed: Bool
    private var slots: [BenchSlot] = []
    private var started = 0
    private var unanswered = 0
    private var startTime: UInt64 = 0
    private var noted: UInt64 = 0
    private var result = BenchResult()
    private var failure: blip_status = BLIP_OK

    // Guarded by the monitor: what the waiting thread sees.
    private let monitor = Monitor()
    private var isFinished = false
    private var lastReply: UInt64 = 0

    init(body: BenchBody, profile: String, count: Int, slots: Int, isCompressed: Bool) {
        self.body = body
        self.profile = profile
        self.count = count
        self.isCompressed = isCompressed
        self.slots = (0..<slots).map { _ in BenchSlot(self) }
    }

    func startWhenOpen(_ connection: Connection) {
        _ = blip_connection_set_open_callback(
            connection.handle,
            { connection, context in
                guard let connection, let context else { return }
                Unmanaged<BenchRun>.fromOpaque(context).takeUnretainedValue().start(connection)
            }, Unmanaged.passUnretained(self).toOpaque(), nil)
    }

    /// Waits for the end; fails when no reply comes for too long.
    func wait(_ connection: Connection, patience: Int64) throws(Failure) -> BenchResult {
        let limit = UInt64(patience) * 1_000_000
        let isInTime = monitor.locked {
            lastReply = max(lastReply, Clock.now)
            while !isFinished {
                let deadline = lastReply + limit
                if Clock.now >= deadline { return false }
                monitor.wait(until: deadline)
            }
            return true
        }
        guard isInTime else {
            // Callbacks may still come and use this object, which the caller is about to drop.
            _ = Unmanaged.passRetained(self)
            throw .connection(
                "\(Terminal.escape(connection.url)) does not answer any more (try again with fewer --in-flight, or "
                    + "give it more time with --timeout)", status: BLIP_ERROR_TIMEOUT)
        }
        let (result, failure) = monitor.locked { (self.result, self.failure) }
        guard failure >= 0 else {
            throw connection.lost(failure, " after \(result.replies) \(result.replies == 1 ? "reply" : "replies")")
        }
        return result
    }

    private func start(_ connection: OpaquePointer) {
        startTime = Clock.now
        for slot in slots { send(slot, connection) }
        finishIfDone()
    }

    private func send(_ slot: BenchSlot, _ connection: OpaquePointer) {
        guard started < count, failure >= 0 else { return }
        var request: OpaquePointer?
        var status = profile.withSlice { blip_request_new($0, &request) }
        guard status >= 0, let request else {
            failure = status
            return
        }
        defer { blip_message_release(request) }
        let content = blip_slice(UnsafeRawBufferPointer(body.bytes))
        if body.bytes.count > 8192 {
            status = blip_message_append_body_borrowed(request, content, { _ in }, nil)
        } else {
            status = blip_message_set_body(request, content)
        }
        if isCompressed { _ = blip_message_set_compressed(request, true) }
        slot.sentAt = Clock.now
        if status >= 0 {
            status = blip_connection_send(
                connection, request,
                { connection, _, response, status, context in
                    guard let connection, let context else { return }
                    let slot = Unmanaged<BenchSlot>.fromOpaque(context).takeUnretainedValue()
                    slot.run.completed(slot, connection, response, status)
                }, Unmanaged.passUnretained(slot).toOpaque(), nil)
        }
        guard status >= 0 else {
            failure = status
            return
        }
        started += 1
        unanswered += 1
    }

    private func completed(
        _ slot: BenchSlot, _ connection: OpaquePointer, _ response: OpaquePointer?, _ status: blip_status
    ) {
        unanswered -= 1
        if status >= 0, let response {
            let now = Clock.now
            result.latency.record(now &- slot.sentAt)
            result.replies += 1
            var size: UInt64 = 0
            _ = blip_message_body_size(response, &size)
            result.bodyBytes += size + UInt64(body.bytes.count)
            var kind: Int32 = 0
            if blip_message_type(response, &kind) >= 0, kind == BLIP_MESSAGE_ERROR {
                if result.errorReplies == 0 { result.firstError = Self.describe(response) }
                result.errorReplies += 1
            }
            if now &- noted > 50_000_000 {
                noted = now
                monitor.locked { lastReply = now }
            }
            send(slot, connection)
        } else if failure >= 0 {
            failure = status < 0 ? status : BLIP_ERROR_INTERNAL
        }
        finishIfDone()
    }

    private static func describe(_ response: OpaquePointer) -> String? {
        guard let body = Library.slice({ blip_message_body(response, $0) }), let reply = blip_message_retain(response)
        else { return nil }
        return Reply(reply).errorText(body.bytes.prefix(1024))
    }

    private func finishIfDone() {
        guard unanswered == 0, started == count || failure < 0 else { return }
        result.seconds = Clock.seconds(since: startTime)
        monitor.locked {
            isFinished = true
            monitor.signal()
        }
    }
}

/// One of the requests under way.
private final class BenchSlot {
    unowned let run: BenchRun
    var sentAt: UInt64 = 0

    init(_ run: BenchRun) {
        self.run = run
    }
}
