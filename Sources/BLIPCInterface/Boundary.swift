import BLIP
import CBLIP

/// Writes an output on success.
@inline(__always)
func put<T>(_ value: T, to target: UnsafeMutablePointer<T>?) -> blip_status {
    guard let target else { return BLIP_ERROR_ARGUMENT }
    target.pointee = value
    return BLIP_OK
}

/// Writes the slice of a text, or says that there is none.
@inline(__always)
func put(_ text: Text?, to target: UnsafeMutablePointer<blip_slice>?) -> blip_status {
    guard let text else { return BLIP_ERROR_NOT_FOUND }
    return put(text.slice, to: target)
}

/// Makes a handle of a new object and writes it.
func create(_ object: some SlotOwner, _ target: UnsafeMutablePointer<OpaquePointer?>?) -> blip_status {
    guard let target else { return BLIP_ERROR_ARGUMENT }
    guard let handle = HandleTable.create(object) else { return BLIP_ERROR_RESOURCES }
    target.pointee = handle
    return BLIP_OK
}

/// Short for the function that releases a context.
typealias Release = @convention(c) (UnsafeMutableRawPointer?) -> Void

/// A time to wait: −1 for ever, otherwise not negative.
func isTimeout(_ milliseconds: Int64) -> Bool { milliseconds >= -1 }
