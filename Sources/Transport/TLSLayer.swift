import CSystem
import Glibc

/// TLS beneath TLS: what stands between a stream's own TLS and its socket when it goes through a proxy that speaks TLS
/// itself.
///
/// To the stream it is like the socket: `send` and `receive` give a number of bytes or a negated errno. It keeps what the
/// socket does not take, and what came and was not decrypted; idle it owns no memory.
final class TLSLayer {
    /// The most bytes of one TLS record, and what the record adds at most (RFC 8446 §5.2).
    private static let record = 16 << 10
    private static let overhead = 512
    /// Encrypted answers to a peer that sends and never receives; what the stream sends itself waits for the socket.
    private static let answerLimit = 2 << 20

    private let session: TLSSession
    private var pending = ByteQueue()
    private var input = ByteQueue()
    private(set) var failure: TransportError?

    /// Takes over a session whose handshake is done, and what it has not decrypted yet.
    init(_ session: TLSSession) {
        self.session = session
        swap(&input, &session.leftover)
    }

    /// Something came that was not received yet: the socket may stay silent although there is more.
    private(set) var mayHaveInput = true
    var hasPending: Bool { !pending.isEmpty }
    var ownsMemory: Bool { pending.ownsMemory || input.ownsMemory }

    /// Encrypts and sends all of the bytes, keeping what the socket does not take: the number of bytes.
    func send(_ descriptor: Int32, _ bytes: UnsafeRawPointer, _ count: Int) -> Int {
        guard pending.count <= Self.answerLimit else { return -Int(ENOBUFS) }
        var done = 0
        while done < count {
            let size = min(count - done, Self.record)
            guard pending.reserve(size + Self.overhead) else { return -Int(ENOMEM) }
            session.setOutput(pending.room)
            let outcome = session.write(bytes + done, size)
            pending.commit(session.takeOutput())
            switch outcome {
            case .done(let written): done += written
            case .wantsOutput: continue
            case .failed(let error):
                failure = error
                return -Int(EPIPE)
            default: return -Int(EPIPE)
            }
        }
        let result = flush(descriptor)
        return result < 0 ? result : count
    }

    /// Sends what is kept: 0, also if the socket takes no more, or a negated errno.
    func flush(_ descriptor: Int32) -> Int {
        while let base = pending.bytes.baseAddress, !pending.isEmpty {
            let result = Syscall.send(descriptor, base, pending.count)
            if result < 0 { return result == -Int(EAGAIN) ? 0 : result }
            pending.removeFirst(result)
        }
        pending.removeAll()
        return 0
    }

    /// Receives and decrypts: the number of bytes, 0 at the end, -EAGAIN if nothing is there.
    func receive(_ descriptor: Int32, _ target: UnsafeMutableRawPointer, _ capacity: Int) -> Int {
        mayHaveInput = true
        while true {
            session.setInput(input.bytes)
            guard pending.reserve(Self.overhead) else { return -Int(ENOMEM) }
            session.setOutput(pending.room)
            let outcome = session.read(target, capacity)
            input.removeFirst(input.count - session.unread.count)
            session.setInput(UnsafeMutableRawBufferPointer(start: nil, count: 0))
            pending.commit(session.takeOutput())
            if pending.isEmpty { pending.removeAll() }
            let flushed = flush(descriptor)
            if flushed < 0 { return flushed }
            switch outcome {
            case .done(let count): return count
            case .wantsInput:
                guard input.reserve(Self.record + Self.overhead), let base = input.room.baseAddress else {
                    return -Int(ENOMEM)
                }
                let result = Syscall.receive(descriptor, base, input.room.count)
                if result > 0 {
                    input.commit(result)
                    continue
                }
                if input.isEmpty { input.removeAll() }
                mayHaveInput = false
                return result
            case .wantsOutput, .wantsTrust:
                mayHaveInput = false
                return -Int(EAGAIN)
            case .ended:
                mayHaveInput = false
                return 0
            case .failed(let error):
                failure = error
                return -Int(ECONNRESET)
            }
        }
    }

    /// Sends close_notify, if that costs no wait.
    func sendEnd(_ descriptor: Int32) {
        guard pending.reserve(Self.overhead) else { return }
        session.setOutput(pending.room)
        session.sendEnd()
        pending.commit(session.takeOutput())
        _ = flush(descriptor)
    }
}
