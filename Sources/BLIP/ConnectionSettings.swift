import CBLIP

/// The handlers and callbacks of a connection: never changed once in use, but replaced as a whole, so that no code of the
/// program runs while a table is being changed. Shared between a listener and its connections.
public final class ConnectionSettings: @unchecked Sendable {
    let handlers: HandlerTable
    public var open: Handler<blip_open_fn>?
    public var close: Handler<blip_close_fn>?
    public var state: Handler<blip_state_fn>?
    public var closeRequest: Handler<blip_close_request_fn>?

    init() { handlers = HandlerTable() }

    private init(_ other: ConnectionSettings) {
        handlers = other.handlers.copy()
        open = other.open
        close = other.close
        state = other.state
        closeRequest = other.closeRequest
    }

    /// A copy with a change, which is not in use yet.
    func changed(_ change: (ConnectionSettings) -> Void) -> ConnectionSettings {
        let copy = ConnectionSettings(self)
        change(copy)
        return copy
    }

    /// A copy with another handler for a profile (nil: the default handler); nil if there was none to be removed.
    func settingHandler(_ profile: Text?, _ handler: RequestHandler?) -> ConnectionSettings? {
        let copy = ConnectionSettings(self)
        guard let bytes = profile?.slice.bytes else {
            copy.handlers.fallback = handler
            return copy
        }
        guard copy.handlers.set(bytes, handler) else { return nil }
        return copy
    }
}
