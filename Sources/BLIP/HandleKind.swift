import BLIPProtocol

/// The kind of object that a handle of blip.h stands for.
///
/// At most 31, which is all that a handle has room for. Zero is left out, so that an ordinary pointer (whose upper byte
/// is zero) is never a valid handle.
public enum HandleKind: UInt8, Sendable {
    case runtimeOptions = 1
    case runtime
    case queue
    case event
    case connectionOptions
    case connection
    case listenerOptions
    case listener
    case message
    case error
    case counters
    case transport
    case module
    case reconnector
    case pool
    case trust
    case fileOptions
    case challenge
}
