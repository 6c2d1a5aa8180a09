/// Reads one Set-Cookie line for the URL that it came from (RFC 6265 §5.2 and §5.3).
struct CookieReader {
    private let bytes: [UInt8]
    private let url: WebSocketURL
    private let now: Int64

    init(_ line: String, _ url: WebSocketURL, now: Int64) {
        bytes = Array(line.utf8)
        self.url = url
        self.now = now
    }

    /// The cookie; nil if it must not be kept. When it was made is for the jar to say.
    func read() -> Cookie? {
        guard bytes.count <= 2 * CookieJar.maximumCookie, bytes.allSatisfy({ HTTPSyntax.isValue($0) }) else {
            return nil
        }
        let parts = bytes.split(separator: UInt8(ascii: ";"), omittingEmptySubsequences: false)
        guard let pair = parts.first, let equals = pair.firstIndex(of: UInt8(ascii: "=")) else { return nil }
        let name = Self.trimmed(pair[..<equals])
        let value = Self.trimmed(pair[(equals + 1)...])
        guard !name.isEmpty, name.count + value.count <= CookieJar.maximumCookie else { return nil }
        let home = CookieJar.home(of: url)
        var cookie = Cookie(
            name: String(decoding: name, as: UTF8.self), value: SecretBytes(value), domain: home, isHostOnly: true,
            path: defaultPath, isSecure: false, isHTTPOnly: false, expiry: nil, creation: 0, lastUse: 0)
        var domain: [UInt8] = []
        var age: Int64?
        var hasPath = false
        for part in parts.dropFirst() {
            let split = part.firstIndex(of: UInt8(ascii: "=")) ?? part.endIndex
            let key = Self.trimmed(part[..<split]).map { HTTPSyntax.lowercased($0) }
            let value = split < part.endIndex ? Self.trimmed(part[(split + 1)...]) : []
            guard value.count <= 1024 else { continue }
            switch String(decoding: key, as: UTF8.self) {
            case "expires": if let date = CookieDate.parse(value) { cookie.expiry = date }
            case "max-age": if let seconds = Self.age(value) { age = seconds }
            case "domain": domain = value.map { HTTPSyntax.lowercased($0) }
            case "path":
                hasPath = value.first == UInt8(ascii: "/")
                cookie.path = hasPath ? String(decoding: value, as: UTF8.self) : defaultPath
            case "secure": cookie.isSecure = true
            case "httponly": cookie.isHTTPOnly = true
            default: break
            }
        }
        if let age { cookie.expiry = age <= 0 ? .min : now.addingReportingOverflow(age).partialValue }
        if let expiry = cookie.expiry { cookie.expiry = min(expiry, now &+ CookieJar.maximumAge) }
        guard set(domain, of: &cookie, home: home) else { return nil }
        guard !cookie.isSecure || url.isSecure else { return nil }
        return keepsPromise(cookie, hasPath: hasPath, hasDomain: !domain.isEmpty) ? cookie : nil
    }

    /// Where it goes; false if the domain is none of this host's.
    private func set(_ domain: [UInt8], of cookie: inout Cookie, home: String) -> Bool {
        let name = domain.first == UInt8(ascii: ".") ? Array(domain.dropFirst()) : domain
        guard !name.isEmpty else { return domain.isEmpty }
        let text = String(decoding: name, as: UTF8.self)
        guard text != home else {
            cookie.isHostOnly = url.isIPLiteral || url.unixPath != nil || Self.looksPublic(name)
            return true
        }
        guard !url.isIPLiteral, url.unixPath == nil, home.hasSuffix("." + text) else { return false }
        guard name.contains(UInt8(ascii: ".")) else { return false }
        // Treated as if there were no domain, so that it goes to no other owner's host.
        guard !Self.looksPublic(name) else { return true }
        cookie.domain = text
        cookie.isHostOnly = false
        return true
    }

    /// One part, or a country's code behind something short, as in "co.uk".
    private static func looksPublic(_ domain: [UInt8]) -> Bool {
        let labels = domain.split(separator: UInt8(ascii: "."))
        guard labels.count >= 2 else { return true }
        return labels.count == 2 && labels[1].count == 2 && labels[0].count <= 3
    }

    private func keepsPromise(_ cookie: Cookie, hasPath: Bool, hasDomain: Bool) -> Bool {
        let name = cookie.name.utf8.map { HTTPSyntax.lowercased($0) }
        if name.starts(with: "__secure-".utf8) { return cookie.isSecure }
        if name.starts(with: "__host-".utf8) { return cookie.isSecure && hasPath && cookie.path == "/" && !hasDomain }
        return true
    }

    /// RFC 6265 §5.1.4.
    private var defaultPath: String {
        let path = url.path.utf8
        guard let slash = path.lastIndex(of: UInt8(ascii: "/")), slash > path.startIndex else { return "/" }
        return String(Substring(path[..<slash]))
    }

    /// Seconds; nil if it is no number (RFC 6265 §5.2.2).
    private static func age(_ value: [UInt8]) -> Int64? {
        let isNegative = value.first == UInt8(ascii: "-")
        let digits = isNegative ? value.dropFirst() : value[...]
        guard !digits.isEmpty, digits.allSatisfy({ HTTPSyntax.isDigit($0) }) else { return nil }
        if isNegative { return 0 }
        // More than the jar keeps anyway.
        guard digits.count <= 10 else { return CookieJar.maximumAge }
        return digits.reduce(0) { $0 * 10 + Int64($1 & 0x0F) }
    }

    private static func trimmed(_ bytes: some BidirectionalCollection<UInt8>) -> [UInt8] {
        var slice = Array(bytes)[...]
        while let first = slice.first, HTTPSyntax.isSpace(first) { slice.removeFirst() }
        while let last = slice.last, HTTPSyntax.isSpace(last) { slice.removeLast() }
        return Array(slice)
    }
}
