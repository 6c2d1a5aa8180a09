import CBLIP
import Transport

/// What other threads may ask of a connection; behind its lock. Texts are set once and live as long as the connection.
struct ConnectionInfo {
    /// What the program has set; nil once the connection has ended.
    var settings: ConnectionSettings?
    var subprotocol: Text?
    var stream: Transport.Stream?
    var path: Text?
    /// Made with the session.
    var record: CounterRecord?
    private var details: ConnectionDetails?
    var version: Int32 = 0
    var closeCode: Int32 = 0
    /// Why or how it ended.
    var finalStatus: blip_status?
    /// Everything about its end was told.
    var hasEnded = false
    var hasEndedHandle = false

    var isSecure: Bool { tls != nil }

    // MARK: Details

    var localAddress: StreamAddress? {
        get { details?.localAddress }
        set { change(isRemoval: newValue == nil) { $0.localAddress = newValue } }
    }

    var remoteAddress: StreamAddress? {
        get { details?.remoteAddress }
        set { change(isRemoval: newValue == nil) { $0.remoteAddress = newValue } }
    }

    var tls: TLSDetails? {
        get { details?.tls }
        set { change(isRemoval: newValue == nil) { $0.tls = newValue } }
    }

    var url: Text? {
        get { details?.url }
        set { change(isRemoval: newValue == nil) { $0.url = newValue } }
    }

    var head: HTTPHeadRecord? {
        get { details?.head }
        set { change(isRemoval: newValue == nil) { $0.head = newValue } }
    }

    var decision: AcceptDecision? {
        get { details?.decision }
        set { change(isRemoval: newValue == nil) { $0.decision = newValue } }
    }

    var user: Text? {
        get { details?.user }
        set { change(isRemoval: newValue == nil) { $0.user = newValue } }
    }

    var error: OwnedError? {
        get { details?.error }
        set { change(isRemoval: newValue == nil) { $0.error = newValue } }
    }

    var userData: Handler<Never>? {
        get { details?.userData }
        set { change(isRemoval: newValue == nil) { $0.userData = newValue } }
    }

    var openWaiters: [Waiter] {
        get { details?.openWaiters ?? [] }
        set { change(isRemoval: newValue.isEmpty) { $0.openWaiters = newValue } }
    }

    var closeWaiters: [Waiter] {
        get { details?.closeWaiters ?? [] }
        set { change(isRemoval: newValue.isEmpty) { $0.closeWaiters = newValue } }
    }

    private mutating func change(isRemoval: Bool, _ body: (ConnectionDetails) -> Void) {
        if let details {
            body(details)
            if isRemoval, details.isEmpty { self.details = nil }
        } else if !isRemoval {
            let new = ConnectionDetails()
            body(new)
            details = new
        }
    }
}
