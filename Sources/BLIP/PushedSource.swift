import BLIPProtocol
import CBLIP
import Transport

/// A body that the program hands over piece by piece, from any thread, as it comes about.
final class PushedSource: BodySource, @unchecked Sendable {
    private struct State: ~Copyable {
        var bytes = Bytes(maximum: Int.max / 2)
        var hasEnded = false
        var hasFailed = false
        /// The engine waits for bytes.
        var isWaited = false
    }

    private let state = Locked(State())

    /// What is held unsent at most before the program has to wait.
    static let capacity = 256 << 10

    override var remaining: UInt64? {
        state.withLock { state -> UInt64? in state.hasEnded ? UInt64(state.bytes.count) : nil }
    }

    override func read(into buffer: UnsafeMutableRawBufferPointer) -> BodyRead {
        state.withLock { state in
            if state.hasFailed { return .failed }
            let count = min(buffer.count, state.bytes.count)
            if count > 0, let base = state.bytes.base {
                buffer.copyMemory(from: UnsafeRawBufferPointer(start: base, count: count))
                state.bytes.removeFirst(count)
            }
            if state.hasEnded, state.bytes.isEmpty { return .end(count) }
            guard count == 0 else { return .bytes(count) }
            state.isWaited = true
            return .wait
        }
    }

    /// Takes bytes: `BLIP_AGAIN`, with none taken, while too many wait. `resume` says that the engine is to be told.
    func push(_ bytes: UnsafeRawBufferPointer, isLast: Bool) -> (status: blip_status, resume: Bool) {
        state.withLock { state in
            guard !state.hasEnded, !state.hasFailed else { return (BLIP_ERROR_STATE, false) }
            guard bytes.isEmpty || state.bytes.count < Self.capacity else { return (BLIP_AGAIN, false) }
            guard state.bytes.append(bytes) else { return (BLIP_ERROR_RESOURCES, false) }
            state.hasEnded = isLast
            let resume = state.isWaited && (isLast || !bytes.isEmpty)
            if resume { state.isWaited = false }
            return (BLIP_OK, resume)
        }
    }

    /// Nobody can push any more. True if the body is incomplete and the engine is to be told.
    func abandon() -> Bool {
        state.withLock { state in
            guard !state.hasEnded, !state.hasFailed else { return false }
            state.hasFailed = true
            return true
        }
    }
}
