import CBLIP
import Synchronization

/// Counts what callbacks see; handed to C as a retained context.
final class Counting: Sendable {
    let calls = Atomic<Int>(0)
    let failures = Atomic<Int>(0)
    let bytes = Atomic<Int>(0)
    let released = Atomic<Int>(0)

    /// One reference for a context of C.
    func context() -> UnsafeMutableRawPointer { Unmanaged.passRetained(self).toOpaque() }

    static func from(_ context: UnsafeMutableRawPointer?) -> Counting? {
        context.map { Unmanaged<Counting>.fromOpaque($0).takeUnretainedValue() }
    }

    /// A release function that counts and gives the reference back.
    static let release: @convention(c) (UnsafeMutableRawPointer?) -> Void = { context in
        guard let context else { return }
        let object = Unmanaged<Counting>.fromOpaque(context)
        object.takeUnretainedValue().released.add(1, ordering: .relaxed)
        object.release()
    }

    static let response: blip_response_fn = { _, _, response, status, context in
        guard let counting = Counting.from(context) else { return }
        var body = blip_slice()
        if status == BLIP_OK, blip_message_body(response, &body) == BLIP_OK {
            counting.bytes.add(Int(body.size), ordering: .relaxed)
        } else {
            counting.failures.add(1, ordering: .relaxed)
        }
        counting.calls.add(1, ordering: .relaxed)
    }
}

/// A slice of a text that lives as long as the program.
func text(_ literal: StaticString) -> blip_slice {
    blip_slice(data: literal.utf8Start, size: literal.utf8CodeUnitCount)
}
