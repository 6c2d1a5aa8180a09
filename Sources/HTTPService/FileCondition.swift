import WebSocketProtocol

/// What the conditions of a request lead to (RFC 9110 §13.1), in the order of §13.2.2.
enum FileCondition {
    /// Go on.
    case met
    /// The client has it already: 304.
    case notModified
    /// 412.
    case failed

    /// - Parameters:
    ///   - tags: the entity tags that the file has: of what is selected, or of all forms of it if it is to be changed.
    ///   - modified: when it was changed; nil: there is none.
    init(_ request: HTTPRequestHead, tags: [String], modified: Int?) {
        let isReading = request.method == "GET" || request.method == "HEAD"
        self = .met
        if let match = request["If-Match"] {
            let isThere = modified != nil && match == "*"
            guard isThere || request.headers.elements("If-Match").contains(where: tags.contains) else {
                self = .failed
                return
            }
        } else if let modified, let date = request["If-Unmodified-Since"].flatMap(HTTPDate.parse), modified > date {
            self = .failed
            return
        }
        if let none = request["If-None-Match"] {
            let isKnown = request.headers.elements("If-None-Match").contains { given in
                tags.contains(given.hasPrefix("W/") ? String(given.dropFirst(2)) : given)
            }
            if isKnown || (modified != nil && none == "*") { self = isReading ? .notModified : .failed }
        } else if isReading, let modified, let date = request["If-Modified-Since"].flatMap(HTTPDate.parse),
            modified <= date
        {
            self = .notModified
        }
    }

    /// Whether a request has conditions at all.
    static func isIn(_ request: HTTPRequestHead) -> Bool {
        ["If-Match", "If-None-Match", "If-Unmodified-Since"].contains { request[$0] != nil }
    }

    static var response: HTTPResponse { ErrorPage.response(412, "The file is not as the request expects it.") }
}
