import BLIPProtocol
import CBLIP
import CSystem
import Glibc
import Transport

/// What a waiting call sleeps on. Signalled once, from any thread.
final class Waiter: @unchecked Sendable {
    private let mutex = UnsafeMutablePointer<pthread_mutex_t>.allocate(capacity: 1)
    private let condition = UnsafeMutablePointer<pthread_cond_t>.allocate(capacity: 1)
    private var isSignalled = false
    private var status: blip_status = BLIP_OK
    private var message: BLIPMessage?

    init() {
        pthread_mutex_init(mutex, nil)
        var attributes = pthread_condattr_t()
        pthread_condattr_init(&attributes)
        pthread_condattr_setclock(&attributes, CLOCK_MONOTONIC)
        pthread_cond_init(condition, &attributes)
        pthread_condattr_destroy(&attributes)
    }

    deinit {
        pthread_cond_destroy(condition)
        pthread_mutex_destroy(mutex)
        condition.deallocate()
        mutex.deallocate()
    }

    func signal(_ status: blip_status, _ message: BLIPMessage? = nil) {
        pthread_mutex_lock(mutex)
        if !isSignalled {
            isSignalled = true
            self.status = status
            self.message = message
        }
        pthread_mutex_unlock(mutex)
        // Behind the lock, which who is woken needs first.
        pthread_cond_broadcast(condition)
    }

    /// Waits until signalled; false when the time (milliseconds, −1 for ever) is over first.
    private func sleep(_ timeout: Int64) -> Bool {
        pthread_mutex_lock(mutex)
        defer { pthread_mutex_unlock(mutex) }
        if timeout == 0 { return isSignalled }
        if timeout < 0 {
            while !isSignalled { pthread_cond_wait(condition, mutex) }
            return true
        }
        var deadline = timespec()
        clock_gettime(CLOCK_MONOTONIC, &deadline)
        let (seconds, milliseconds) = timeout.quotientAndRemainder(dividingBy: 1000)
        deadline.tv_sec =
            deadline.tv_sec.addingReportingOverflow(Int(seconds)).overflow
            ? Int.max : deadline.tv_sec + Int(seconds)
        deadline.tv_nsec += Int(milliseconds) * 1_000_000
        if deadline.tv_nsec >= 1_000_000_000, deadline.tv_sec < Int.max {
            deadline.tv_nsec -= 1_000_000_000
            deadline.tv_sec += 1
        }
        while !isSignalled {
            if pthread_cond_timedwait(condition, mutex, &deadline) == ETIMEDOUT { return isSignalled }
        }
        return true
    }

    /// Waits, running the loop of a runtime without threads. Nil when the time is over.
    func wait(_ timeout: Int64, in context: LoopContext) -> (status: blip_status, message: BLIPMessage?)? {
        guard context.runtime.threadCount == 0 else {
            return sleep(timeout) ? (status, message) : nil
        }
        let start = monotonicNanoseconds()
        while true {
            if sleep(0) { return (status, message) }
            var left: Int64 = -1
            if timeout >= 0 {
                left = timeout - Int64((monotonicNanoseconds() - start) / 1_000_000)
                if left <= 0 {
                    _ = context.loop.runOnce(timeout: 0)
                    return sleep(0) ? (status, message) : nil
                }
            }
            let before = monotonicNanoseconds()
            let count = context.loop.runOnce(timeout: left)
            // Another thread runs the loop, or it has stopped: its end is waited for without burning the processor.
            if count == 0, left != 0, monotonicNanoseconds() - before < 500_000 { _ = sleep(1) }
        }
    }

    /// Waits for what becomes of a request whose time is over. If it was still on its way to the loop when it was given up,
    /// it ends as one that was cancelled.
    func waitForEnd(in context: LoopContext) -> (status: blip_status, response: BLIPMessage?) {
        guard let end = wait(-1, in: context), end.status != BLIP_ERROR_CANCELLED else {
            return (BLIP_ERROR_TIMEOUT, nil)
        }
        return (end.status, end.message)
    }
}
