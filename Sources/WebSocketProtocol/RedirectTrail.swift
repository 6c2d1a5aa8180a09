/// Where redirects have led (RFC 9110 §15.4): which are followed, and when it is enough.
///
/// Function: 301, 302, 303, 307 and 308 are followed alike, because an upgrade is always a GET without a body. Never
/// from a secure URL to an insecure one, never to a Unix socket of another place, never to a URL with a user name in it.
public struct RedirectTrail: Sendable {
    /// What a redirect leads to.
    public enum Step: Sendable, Equatable {
        /// The answer is no redirect.
        case none
        /// Go there.
        case follow(WebSocketURL)
        /// It must not be followed; the text says why.
        case refuse(String)
    }

    /// Where it began: what belongs to this origin is sent to no other one.
    public let start: WebSocketURL
    /// Where it is now.
    public private(set) var current: WebSocketURL
    /// How many redirects were followed.
    public private(set) var count = 0

    private let limit: Int
    private var seen: [WebSocketURL]

    /// - Parameters:
    ///   - start: the URL to begin with.
    ///   - limit: how many redirects are followed; 0: none.
    public init(start: WebSocketURL, limit: Int = 10) {
        let plain = start.withoutCredentials
        self.start = plain
        current = plain
        self.limit = max(0, limit)
        seen = [plain]
    }

    /// Whether `current` is of the origin where it began.
    public var isAtHome: Bool { current.hasSameOrigin(as: start) }

    /// What to do on an answer; a step is taken by this call.
    ///
    /// - Parameter hasChanged: what the next request sends differs from before (a cookie was set): a URL that was seen
    ///   may then answer something else.
    public mutating func receive(_ response: HTTPResponseHead, hasChanged: Bool) -> Step {
        guard [301, 302, 303, 307, 308].contains(response.status) else { return .none }
        let from = "the server redirects (HTTP status \(response.status))"
        guard limit > 0 else { return .none }
        let locations = response.all("Location")
        guard locations.count == 1, let location = locations.first, !location.isEmpty else {
            return .refuse("\(from), but does not say \(locations.count > 1 ? "clearly " : "")where to")
        }
        guard count < limit else { return .refuse("\(from) once more after \(count) redirects, which is the limit") }
        let next: WebSocketURL
        switch WebSocketURL.parse(URLReference.resolve(location, at: current)) {
        case .success(let url): next = url
        case .failure(let failure): return .refuse("\(from) to something else than a WebSocket URL: \(failure.text)")
        }
        let to = "\(from) to \(next.logged)"
        guard next.isWebSocket else { return .refuse("\(from) to something else than a WebSocket URL: \(next.logged)") }
        guard next.user == nil, next.password == nil else {
            return .refuse("\(to) with a user name in the URL, which only the program may choose")
        }
        guard next.isSecure || !current.isSecure else {
            return .refuse("\(to), which is not encrypted: a secure connection is never given up")
        }
        guard next.unixPath == nil || next.unixPath == current.unixPath else {
            return .refuse("\(to), a Unix socket, which only the program may choose")
        }
        if hasChanged { seen = [] }
        guard !seen.contains(next) else {
            return .refuse("\(to), where it was before: the redirects go round in a circle")
        }
        seen.append(next)
        current = next
        count += 1
        return .follow(next)
    }
}
