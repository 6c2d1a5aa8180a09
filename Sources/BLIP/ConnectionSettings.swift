import CBLIP

/// The handlers and callbacks of a connection: never changed once in use, but replaced as a whole, so that no code of the
/// program runs while a table is being changed. Shared between a listener and its connections.
public final class ConnectionSettings: @unchecked Sendable {
    /// What the program has set.
    private let handlers: HandlerTable
    /// What requests go by: `handlers`, and behind them those of modules.
    private(set) var routes: HandlerTable
    private(set) var hooks: Hooks?
    public var open: Handler<blip_open_fn>?
    public var close: Handler<blip_close_fn>?
    public var state: Handler<blip_state_fn>?
    /// Whom the certificate must be for, in place of what the options say.
    public var serverName: Text?
    public var trace: Handler<blip_frame_fn>?
    public var challenge: Handler<blip_challenge_fn>?
    public var closeRequest: Handler<blip_close_request_fn>?
    public var trust: Handler<blip_trust_fn>?
    public var timeout: Handler<blip_timeout_fn>?

    /// Nothing is set; for the many connections that begin and end so.
    static let none = ConnectionSettings()

    init() {
        handlers = HandlerTable()
        routes = handlers
    }

    private init(_ other: ConnectionSettings) {
        handlers = other.handlers.copy()
        routes = handlers
        hooks = other.hooks
        open = other.open
        close = other.close
        state = other.state
        serverName = other.serverName
        trace = other.trace
        challenge = other.challenge
        closeRequest = other.closeRequest
        trust = other.trust
        timeout = other.timeout
        addRoutes()
    }

    /// Puts the handlers of modules behind the program's own.
    private func addRoutes() {
        routes = handlers
        for attachment in attachments {
            for (profile, handler) in attachment.module.handlers {
                guard let bytes = profile.slice.bytes, !routes.contains(bytes) else { continue }
                if routes === handlers { routes = handlers.copy() }
                _ = routes.set(bytes, handler)
            }
        }
    }

    var attachments: [Attachment] { hooks?.attachments ?? [] }

    /// A copy with modules more: behind those of the same level.
    func adding(_ new: [Attachment]) -> ConnectionSettings {
        var all = attachments
        for attachment in new {
            let index = all.firstIndex { $0.level.rawValue > attachment.level.rawValue } ?? all.endIndex
            all.insert(attachment, at: index)
        }
        return with(all)
    }

    /// A copy without a module; nil if it has none such.
    func removing(_ attachment: Attachment) -> ConnectionSettings? {
        guard attachments.contains(where: { $0 === attachment }) else { return nil }
        return with(attachments.filter { $0 !== attachment })
    }

    private func with(_ attachments: [Attachment]) -> ConnectionSettings {
        let copy = ConnectionSettings(self)
        copy.hooks = Hooks(attachments)
        copy.addRoutes()
        return copy
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
            copy.addRoutes()
            return copy
        }
        guard copy.handlers.set(bytes, handler) else { return nil }
        copy.addRoutes()
        return copy
    }
}
