import WebSocketProtocol

/// What a proxy wants that the options do not say.
struct ProxyQuestion {
    let proxy: ProxyURL
    let list: [HTTPChallenge]
    /// The how manyth challenge on the way of this dialer.
    let challenges: Int
    /// What is reported if nobody answers.
    let failure: Failure
}
