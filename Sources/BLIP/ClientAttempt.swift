import CBLIP
import Transport
import WebSocketProtocol

/// What an outgoing connection knows while it is on its way: where it has been sent, what it has answered to challenges,
/// what the answer under way leads to. Loop thread only; it ends when the connection is open.
final class ClientAttempt {
    /// How often a program may be asked about one origin.
    static let maximumChallenges = 20

    /// What follows once the body of an answer has been read over.
    enum Next {
        /// Nothing was decided: the program has been asked.
        case undecided
        /// The request again, on this byte stream if it can be used, else on another one.
        case request
    }

    private(set) var trail: RedirectTrail
    var authenticator: HTTPAuthenticator
    /// TLS of the present URL.
    var tls: TLSContext?
    /// The body of an answer that leads to another request; nil while a head is awaited.
    var body: HTTPBodySkipper?
    var next = Next.undecided
    /// What the program was asked, and has not answered.
    var challenge: Challenge?
    /// Whom the program has told a proxy that we are, and how often proxies have asked before the present byte stream.
    var proxyAnswer: (proxy: ProxyURL, credentials: HTTPCredentials)?
    var proxyChallenges = 0
    /// Requests sent on the present byte stream.
    var requestsOnStream = 0
    /// When it has taken too long; counted anew for the time that the program takes.
    var deadline = UInt64.max
    private let options: HTTPOptions

    init(url: WebSocketURL, configuration: Configuration) {
        var options = configuration.http
        // What the program has written itself goes first.
        if configuration.headers.contains(where: { $0.name.lowercased() == "authorization" }) {
            options.isPreemptive = false
        }
        trail = RedirectTrail(start: url, limit: options.redirects)
        authenticator = HTTPAuthenticator(credentials: options.credentials, isPreemptive: options.isPreemptive)
        self.options = options
        tls = configuration.tls
    }

    var url: WebSocketURL { trail.current }

    /// Takes a redirect, if the answer is one. What was said to one origin is not said to another.
    func redirect(_ response: HTTPResponseHead, hasChanged: Bool) -> RedirectTrail.Step {
        let before = url
        let step = trail.receive(response, hasChanged: hasChanged)
        if case .follow(let url) = step, !url.hasSameOrigin(as: before) {
            authenticator = HTTPAuthenticator(
                credentials: trail.isAtHome ? options.credentials : nil, isPreemptive: options.isPreemptive)
        }
        return step
    }

    /// The program's headers that go to the present URL: of those that may hold secrets, and of Host, none goes to
    /// another origin than the first.
    func headers(_ own: [HTTPHeader]) -> [HTTPHeader] {
        if trail.isAtHome { return own }
        return own.filter { !Self.isPrivate($0.name) }
    }

    static func isPrivate(_ name: String) -> Bool {
        let lower = name.lowercased()
        return ["authorization", "cookie", "host", "proxy-authorization"].contains(lower)
    }
}
