import BLIPProtocol
import CBLIP
import Transport

/// Frames on their way to a connection without a stream: put in on any thread, taken out on the loop's, in order and with
/// a bound.
final class FrameInbox: LoopWork, @unchecked Sendable {
    /// How the carrier's other side has ended.
    enum End {
        case closed(code: UInt16, reason: [UInt8])
        case ended(blip_status)
    }

    /// So many bytes may wait; the frame that passes it is still taken.
    private static let limit = 256 << 10
    /// Bytes received, and inflated, in one turn before other connections come first.
    private static let turnBudget = 1 << 20
    private static let lengthSize = 4

    private struct Shared {
        var bytes: [UInt8] = []
        var end: End?
        var isPosted = false
        var isClosed = false
        var wantsRoom = false
    }

    private let shared = Locked(Shared())
    let loop: EventLoop

    // The loop's.
    private var carrier: FrameCarrier?
    private var batch: [UInt8] = []
    private var offset = 0

    init(_ carrier: FrameCarrier, _ loop: EventLoop) {
        self.carrier = carrier
        self.loop = loop
    }

    /// Any thread. `BLIP_AGAIN`: too much waits; room will be made known.
    ///
    /// - Parameter isLast: the last one is taken however much waits.
    func push(_ frame: UnsafeRawBufferPointer, isLast: Bool = false) -> blip_status {
        var mustPost = false
        let status = shared.withLock { shared -> blip_status in
            guard !shared.isClosed, shared.end == nil else { return BLIP_ERROR_CLOSED }
            guard shared.bytes.count < Self.limit || isLast else {
                shared.wantsRoom = true
                return BLIP_AGAIN
            }
            withUnsafeBytes(of: UInt32(truncatingIfNeeded: frame.count)) { shared.bytes.append(contentsOf: $0) }
            shared.bytes.append(contentsOf: frame)
            mustPost = !shared.isPosted
            shared.isPosted = true
            return BLIP_OK
        }
        if mustPost { loop.post(self) }
        return status
    }

    /// Nothing follows. Any thread.
    func push(_ end: End) -> blip_status {
        var mustPost = false
        let status = shared.withLock { shared -> blip_status in
            guard !shared.isClosed, shared.end == nil else { return BLIP_ERROR_CLOSED }
            shared.end = end
            mustPost = !shared.isPosted
            shared.isPosted = true
            return BLIP_OK
        }
        if mustPost { loop.post(self) }
        return status
    }

    /// Whether frames wait, so that others must not overtake them. Loop thread.
    var isEmpty: Bool { offset == batch.count && shared.withLock { $0.bytes.isEmpty } }

    /// The connection has ended.
    func close() {
        carrier = nil
        let old = shared.withLock { shared -> Shared in
            defer {
                shared = Shared()
                shared.isClosed = true
            }
            return shared
        }
        _ = consume old
    }

    override func run() {
        var budget = Self.turnBudget
        // Callbacks may end the connection, and with it what this object holds.
        var bytes: [UInt8] = []
        swap(&bytes, &batch)
        var at = offset
        defer {
            if carrier != nil {
                swap(&bytes, &batch)
                offset = at
            }
        }
        while let connection = carrier?.connection {
            // The rest of a frame comes before what is behind it, be that the end.
            guard !connection.isFrameSuspended else { return }
            if at == bytes.count {
                at = 0
                bytes.removeAll(keepingCapacity: bytes.capacity <= Self.limit)
                guard takeMore(&bytes, connection) else { return }
            }
            guard connection.mayReceive else { return }
            guard budget > 0 else {
                loop.post(self)
                return
            }
            let length = bytes.withUnsafeBytes { Int($0.loadUnaligned(fromByteOffset: at, as: UInt32.self)) }
            let start = at + Self.lengthSize
            at = start + length
            let inflatedBefore = connection.bytesInflated
            bytes.withUnsafeMutableBytes {
                connection.receiveFrame(UnsafeMutableRawBufferPointer(rebasing: $0[start..<start + length]))
            }
            budget &-= length + 256 &+ Int(truncatingIfNeeded: connection.bytesInflated &- inflatedBefore)
        }
    }

    /// Takes what has come meanwhile. False: nothing, or the end.
    private func takeMore(_ bytes: inout [UInt8], _ connection: Connection) -> Bool {
        var end: End?
        var tellRoom = false
        let hasMore = shared.withLock { shared -> Bool in
            swap(&shared.bytes, &bytes)
            tellRoom = shared.wantsRoom
            shared.wantsRoom = false
            if bytes.isEmpty {
                end = shared.end
                shared.isPosted = end != nil
                return false
            }
            return true
        }
        if tellRoom { carrier?.makeRoomKnown() }
        if let end { connection.carrierDidEnd(end) }
        return hasMore
    }
}
