import BLIPProtocol
import CBLIP

/// Runs `body` with `bytes`, or with a copy of them if they lie in memory that is about to change.
@inline(__always)
func withDetached(
    _ bytes: UnsafeRawBufferPointer, from memory: borrowing Bytes, _ body: (UnsafeRawBufferPointer) -> blip_status
) -> blip_status {
    guard let start = bytes.baseAddress, let base = memory.base, bytes.count > 0,
        start < UnsafeRawPointer(base) + memory.capacity, start + bytes.count > UnsafeRawPointer(base)
    else { return body(bytes) }
    let copy = Text(bytes)
    return withExtendedLifetime(copy) { body(copy.slice.bytes ?? UnsafeRawBufferPointer(start: nil, count: 0)) }
}
