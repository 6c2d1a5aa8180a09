/// What few connections have, or each for a short time; behind the lock of `ConnectionInfo`, which makes it when something
/// is put in. Many connections are idle, and there may be a million.
final class ConnectionDetails {
    var localAddress: StreamAddress?
    var remoteAddress: StreamAddress?
    /// Of a connection with TLS, from its opening on.
    var tls: TLSDetails?
    var url: Text?
    /// The HTTP head of the peer; of an accepted connection until the open callback has been run.
    var head: HTTPHeadRecord?
    /// What a program decides about a client; until the open callback has been run.
    var decision: AcceptDecision?
    /// Whose credentials were right.
    var user: Text?
    var error: OwnedError?
    var userData: Handler<Never>?
    var openWaiters: [Waiter] = []
    var closeWaiters: [Waiter] = []

    var isEmpty: Bool {
        let hasTexts = localAddress != nil || remoteAddress != nil || tls != nil || url != nil || user != nil
        let hasOthers = head != nil || decision != nil || error != nil || userData != nil
        return !hasTexts && !hasOthers && openWaiters.isEmpty && closeWaiters.isEmpty
    }
}
