/// What a proxy's answer leads to.
public enum ProxyStep: Sendable, Equatable {
    /// More bytes are needed; so many were taken.
    case more(consumed: Int)
    /// These bytes are to be sent; so many were taken.
    case send([UInt8], consumed: Int)
    /// The way is open; the bytes behind those taken come from the target.
    case connected(consumed: Int)
    /// The proxy ends this connection but may be asked again on a new one, with what it wants.
    case again
    /// The proxy wants what only the program may know; so many bytes were taken. What comes meanwhile is still to be
    /// given. Goes on with `answer`; the failure is for those who do not.
    case asks([HTTPChallenge], ProxyFailure, consumed: Int)
    case failed(ProxyFailure)
}
