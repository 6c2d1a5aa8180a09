import WebSocketProtocol

/// What an outgoing connection does about authentication, redirects and cookies.
struct HTTPOptions: Sendable {
    /// Only for the origin of the connection's own URL.
    var credentials: HTTPCredentials?
    /// A password goes out before it is asked for.
    var isPreemptive = true
    var redirects = 10
    /// The runtime's jar is used.
    var usesCookies = false
}
