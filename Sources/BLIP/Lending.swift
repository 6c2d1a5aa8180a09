import BLIPProtocol
import CSystem

/// Calls `body` with a handle of the message that is valid meanwhile.
@inline(__always)
func lend(_ message: BLIPMessage?, _ body: (OpaquePointer?) -> Void) {
    guard let message else { return body(nil) }
    let handle = HandleTable.lend(message)
    let before = csystem_lend(UInt(bitPattern: handle), Unmanaged.passUnretained(message).toOpaque())
    body(handle)
    csystem_take_back(before)
    HandleTable.takeBack(handle, message)
}
