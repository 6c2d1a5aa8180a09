/// Cookies of many servers (RFC 6265, with the later precautions of its successor).
///
/// Overview: `receive` takes what answers set; `header` gives what goes with a request. The wall clock is the caller's.
///
/// Function: a cookie goes back to the host that set it, or to hosts below its domain. A domain of one part (such as
/// "com") is refused, and one that looks like a public suffix (such as "co.uk") is taken for the host alone; there is no
/// list of public suffixes in here. Cookies that want TLS are neither set nor overwritten without it. The prefixes
/// __Secure- and __Host- mean what they say. Nothing lives longer than 400 days.
///
/// Limits: a cookie has at most 4,096 bytes, a domain at most 50 cookies and a jar 1,000; where there are too many the
/// ones that were not used for longest go. A header has at most 8,192 bytes; cookies that do not fit are left out of it.
public struct CookieJar: Sendable {
    /// The most bytes of a Cookie header.
    public static let maximumHeader = 8192
    static let maximumCookie = 4096
    static let maximumOfDomain = 50
    static let maximumCookies = 1000
    static let maximumAge: Int64 = 400 * 86_400

    private var cookies: [Cookie] = []
    private var clock: UInt64 = 0

    /// An empty jar.
    public init() {}

    /// How many cookies there are, expired ones included.
    public var count: Int { cookies.count }

    /// Forgets all.
    public mutating func removeAll() { cookies = [] }

    /// Takes the Set-Cookie lines of an answer; those that are not good are left out (RFC 6265 §5.3).
    /// - Returns: whether a cookie was set, changed or removed.
    public mutating func receive(_ response: HTTPResponseHead, from url: WebSocketURL, now: Int64) -> Bool {
        var hasChanged = false
        for line in response.all("Set-Cookie").prefix(Self.maximumOfDomain) where set(line, from: url, now: now) {
            hasChanged = true
        }
        return hasChanged
    }

    /// Sets one cookie.
    /// - Parameters:
    ///   - line: as in a Set-Cookie header, such as "name=value; Path=/db; Max-Age=3600".
    ///   - url: who sets it.
    ///   - now: seconds since 1970.
    /// - Returns: false if it was refused.
    public mutating func set(_ line: String, from url: WebSocketURL, now: Int64) -> Bool {
        guard var cookie = CookieReader(line, url, now: now).read() else { return false }
        clock += 1
        cookie.creation = clock
        cookie.lastUse = clock
        let old = cookies.firstIndex {
            $0.name == cookie.name && $0.domain == cookie.domain && $0.isHostOnly == cookie.isHostOnly
                && $0.path == cookie.path
        }
        if !url.isSecure {
            let isTaken = cookies.contains { other in
                other.isSecure && other.name == cookie.name && !other.hasExpired(at: now)
                    && Self.isBelow(other.domain, cookie.domain) && Cookie.path(other.path, covers: cookie.path)
            }
            if isTaken { return false }
        }
        if let old {
            cookie.creation = cookies[old].creation
            cookies.remove(at: old)
        }
        guard !cookie.hasExpired(at: now) else { return old != nil }
        makeRoom(for: cookie, now: now)
        cookies.append(cookie)
        return true
    }

    /// Whether a line asks for a cookie to be removed.
    public static func isRemoval(_ line: String, from url: WebSocketURL, now: Int64) -> Bool {
        CookieReader(line, url, now: now).read()?.hasExpired(at: now) == true
    }

    private static func isBelow(_ one: String, _ other: String) -> Bool {
        one == other || one.hasSuffix("." + other) || other.hasSuffix("." + one)
    }

    private mutating func makeRoom(for cookie: Cookie, now: Int64) {
        guard cookies.count >= Self.maximumOfDomain else { return }
        cookies.removeAll { $0.hasExpired(at: now) }
        if cookies.count(where: { $0.domain == cookie.domain }) >= Self.maximumOfDomain {
            removeOldest { $0.domain == cookie.domain }
        }
        if cookies.count >= Self.maximumCookies { removeOldest { _ in true } }
    }

    private mutating func removeOldest(where isMeant: (Cookie) -> Bool) {
        let oldest = cookies.indices.filter { isMeant(cookies[$0]) }.min { cookies[$0].lastUse < cookies[$1].lastUse }
        if let oldest { cookies.remove(at: oldest) }
    }

    /// The value of a Cookie header for a request (RFC 6265 §5.4); nil: no cookie goes there.
    public mutating func header(for url: WebSocketURL, now: Int64) -> SecretBytes? {
        guard !cookies.isEmpty else { return nil }
        let host = Self.home(of: url)
        let chosen = cookies.indices
            .filter { !cookies[$0].hasExpired(at: now) && cookies[$0].matches(url, isHome: host) }
            .sorted { first, second in
                let (a, b) = (cookies[first].path.utf8.count, cookies[second].path.utf8.count)
                return a != b ? a > b : cookies[first].creation < cookies[second].creation
            }
        var value: [UInt8] = []
        value.reserveCapacity(Self.maximumHeader)
        clock += 1
        for index in chosen {
            let cookie = cookies[index]
            guard value.count + cookie.name.utf8.count + cookie.value.count + 3 <= Self.maximumHeader else { continue }
            if !value.isEmpty { value += "; ".utf8 }
            value += cookie.name.utf8
            value.append(UInt8(ascii: "="))
            value += cookie.value.bytes
            cookies[index].lastUse = clock
        }
        return value.isEmpty ? nil : SecretBytes(taking: &value)
    }

    /// Whose cookies go to a URL: its host, or the path of its socket.
    static func home(of url: WebSocketURL) -> String {
        url.unixPath.map { WebSocketURLReader.encoded($0) } ?? url.host
    }
}
