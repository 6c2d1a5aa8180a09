import CBLIP
import Glibc

/// Feeds a message's body from a descriptor that may block, such as standard input.
///
/// A thread of its own reads ahead, at most `capacity` bytes; the library takes them on its loop thread, where nothing
/// may block, and is told when there is more.
final class BodyPipe: @unchecked Sendable {
    private static let capacity = 1 << 20

    private let descriptor: Int32
    private let message: OpaquePointer
    // The rest is guarded by the monitor.
    private let monitor = Monitor()
    private var bytes: [UInt8] = []
    private var taken = 0
    private var isAtEnd = false
    private var hasFailed = false
    private var isStarved = false
    private var isAbandoned = false

    init(_ descriptor: Int32, _ message: OpaquePointer) {
        self.descriptor = descriptor
        self.message = message
    }

    func attach() -> blip_status {
        let context = Unmanaged.passRetained(self).toOpaque()
        let status = blip_message_append_body_pulled(
            message,
            { buffer, capacity, written, context in
                guard let buffer, let written, let context else { return BLIP_ERROR_ARGUMENT }
                let pipe = Unmanaged<BodyPipe>.fromOpaque(context).takeUnretainedValue()
                return pipe.take(UnsafeMutableRawBufferPointer(start: buffer, count: capacity), &written.pointee)
            }, context,
            { context in
                guard let context else { return }
                let pipe = Unmanaged<BodyPipe>.fromOpaque(context).takeRetainedValue()
                pipe.abandon()
            })
        guard status >= 0 else { return status }
        _ = blip_message_retain(message)
        let isStarted = Thread.start { [self] in
            fill()
            blip_message_release(message)
        }
        guard isStarted else {
            blip_message_release(message)
            return BLIP_ERROR_RESOURCES
        }
        return BLIP_OK
    }

    private func abandon() {
        monitor.locked {
            isAbandoned = true
            monitor.signal()
        }
    }

    /// On the loop thread.
    private func take(_ buffer: UnsafeMutableRawBufferPointer, _ written: inout Int) -> blip_status {
        monitor.locked {
            if hasFailed { return BLIP_ERROR_BODY }
            let count = min(buffer.count, bytes.count - taken)
            guard count > 0 || isAtEnd else {
                isStarved = true
                return BLIP_AGAIN
            }
            bytes.withUnsafeBytes {
                buffer.copyMemory(from: UnsafeRawBufferPointer(rebasing: $0[taken..<taken + count]))
            }
            taken += count
            written = count
            let isEmpty = taken == bytes.count
            if isEmpty {
                bytes.removeAll(keepingCapacity: true)
                taken = 0
                monitor.signal()
            }
            return isEmpty && isAtEnd ? BLIP_DATA_END : BLIP_OK
        }
    }

    /// On the reading thread.
    private func fill() {
        let chunk = UnsafeMutableRawBufferPointer.allocate(byteCount: 65_536, alignment: 16)
        defer { chunk.deallocate() }
        while true {
            let count = read(descriptor, chunk.baseAddress, chunk.count)
            if count < 0 && errno == EINTR { continue }
            let goesOn = monitor.locked {
                while bytes.count >= Self.capacity && !isAbandoned { monitor.wait(until: nil) }
                if count > 0 { bytes.append(contentsOf: chunk[..<count]) }
                if count == 0 { isAtEnd = true }
                if count < 0 { hasFailed = true }
                return count > 0 && !isAbandoned
            }
            let wasStarved = monitor.locked {
                defer { isStarved = false }
                return isStarved
            }
            if wasStarved { _ = blip_message_resume_body(message) }
            if !goesOn { return }
        }
    }
}
