import WebSocketProtocol

/// Keeps pages of other sites from using a browser's rights here. A browser names the origin of each request that changes
/// something; a program does not, and needs no token.
enum OriginCheck {
    static let header = "X-Form-Token"

    /// The answer to a request that may not change anything; nil if it may. Forms carry their token inside.
    static func refusal(_ request: HTTPRequestHead, isSecure: Bool, token: String) -> HTTPResponse? {
        if let site = request["Sec-Fetch-Site"], site != "same-origin", site != "none" { return refused }
        guard let origin = request["Origin"] else { return nil }
        guard let host = request["Host"], origin == "\(isSecure ? "https" : "http")://\(host)" else { return refused }
        if request.method == "POST" { return nil }
        guard let given = request[header], matches(given, token) else { return refused }
        return nil
    }

    /// Whether a token is the one; in constant time.
    static func matches(_ given: String, _ token: String) -> Bool {
        let (one, other) = (Array(given.utf8), Array(token.utf8))
        guard one.count == other.count, !other.isEmpty else { return false }
        return zip(one, other).reduce(UInt8(0)) { $0 | ($1.0 ^ $1.1) } == 0
    }

    static var refused: HTTPResponse {
        ErrorPage.response(403, "That request did not come from a page of this server: go back and try again.")
    }
}
