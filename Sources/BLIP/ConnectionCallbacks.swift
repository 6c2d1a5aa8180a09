import CBLIP

/// What the program wants to know of a connection. Shared between a listener and its connections until one changes it.
public final class ConnectionCallbacks: @unchecked Sendable {
    public var open: Handler<blip_open_fn>?
    public var close: Handler<blip_close_fn>?
    public var state: Handler<blip_state_fn>?

    init() {}

    func copy() -> ConnectionCallbacks {
        let copy = ConnectionCallbacks()
        copy.open = open
        copy.close = close
        copy.state = state
        return copy
    }
}
