import CBLIP

/// When a reconnector tries again, and when it gives up.
public struct ReconnectPolicy: Sendable {
    /// Milliseconds.
    public var initialDelay: Int64 = 500
    public var maximumDelay: Int64 = 30_000
    /// Hundredths by which the delay grows from try to try.
    public var growth: UInt32 = 200
    /// Tries in a row that may fail; 0: any number.
    public var attempts: UInt32 = 0
    /// How long a connection has to be open for the next failure to count as the first; milliseconds.
    public var stableTime: Int64 = 10_000
    /// Requests of which nothing has left wait for the next connection.
    public var carriesOver = false
    /// Also what cannot get better by itself is tried again.
    public var isPersistent = false

    /// The longest delay behind so many failed tries, in milliseconds.
    func longestDelay(after failures: UInt32) -> Int64 {
        var delay = Double(initialDelay)
        for _ in 1..<max(failures, 1) where delay < Double(maximumDelay) { delay *= Double(growth) / 100 }
        return delay < Double(maximumDelay) ? Int64(delay) : maximumDelay
    }

    /// A delay with full jitter: anything between nothing and the longest, so that a crowd that was thrown out together
    /// does not come back together.
    func delay(after failures: UInt32) -> Int64 {
        var generator = SystemRandomNumberGenerator()
        return Int64.random(in: 0...max(0, longestDelay(after: failures)), using: &generator)
    }

    /// Whether another try can go better than one that ended so.
    static func isWorthwhile(_ status: blip_status, domain: String, code: Int64) -> Bool {
        switch status {
        case BLIP_ERROR_ARGUMENT, BLIP_ERROR_URL, BLIP_ERROR_UNSUPPORTED, BLIP_ERROR_TLS_SETUP,
            BLIP_ERROR_CERTIFICATE, BLIP_ERROR_SUBPROTOCOL, BLIP_ERROR_STOPPED:
            return false
        case BLIP_ERROR_HTTP_STATUS:
            // Too slow, too early, too many, or the server's own trouble (RFC 9110 §15, RFC 6585 §4, RFC 8470 §5.2).
            return code >= 500 || [408, 425, 429].contains(code)
        case BLIP_ERROR_PEER_CLOSED:
            // The peer cannot make anything of what it got (RFC 6455 §7.4.1).
            return ![1002, 1003, 1007, 1008, 1009, 1010].contains(code)
        default: return true
        }
    }
}
