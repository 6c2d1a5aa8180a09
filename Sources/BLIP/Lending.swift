import BLIPProtocol
import CSystem

/// Calls `body` with a handle of the message that is valid meanwhile.
@inline(__always)
func lend(_ message: BLIPMessage?, _ body: (OpaquePointer?) -> Void) {
    if let message { lend(message, body) } else { body(nil) }
}

/// The same without an optional, which would be counted.
@inline(__always)
func lend(_ message: BLIPMessage, _ body: (OpaquePointer?) -> Void) {
    let handle = HandleTable.lend(message)
    let before = csystem_lend(UInt(bitPattern: handle), Unmanaged.passUnretained(message).toOpaque())
    body(handle)
    csystem_take_back(before)
    HandleTable.takeBack(handle, message)
}
