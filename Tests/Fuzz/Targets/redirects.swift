@testable import WebSocketProtocol

/// A URL, then Locations, a line each: whatever they are, a trail ends, never loses its encryption, and never shows or
/// takes over user names.
@c(LLVMFuzzerTestOneInput)
public func fuzz(_ data: UnsafePointer<UInt8>?, _ size: Int) -> Int32 {
    var input = Input(data, size)
    let hasChanged = input.flag()
    let lines = input.rest().split(separator: 0x0A, omittingEmptySubsequences: false)
    let texts = lines.map { String(decoding: $0, as: UTF8.self) }
    guard let first = texts.first, case .success(let start) = WebSocketURL.parse(first) else { return 0 }
    var trail = RedirectTrail(start: start)
    for location in texts.dropFirst().prefix(64) {
        let before = trail.current
        let head = HTTPResponseHead(
            status: 302, reason: "", headers: HTTPHeaders([HTTPHeader("Location", location)]))
        switch trail.receive(head, hasChanged: hasChanged) {
        case .none: finding("a redirect that is none")
        case .refuse(let text):
            check(!text.isEmpty && text.utf8.count < 20_000, "text of \(text.utf8.count) bytes")
            check(trail.current == before, "moved in spite of a refusal")
        case .follow(let url):
            check(url == trail.current, "somewhere else")
            check(url.isSecure || !before.isSecure, "\(before) led to \(url)")
            check(url.user == nil && url.password == nil, "a user name")
            check(url.unixPath == nil || url.unixPath == before.unixPath, "\(before) led to \(url)")
            check(trail.count <= 10, "\(trail.count) redirects")
            check(!url.target.utf8.contains(UInt8(ascii: "#")), "a fragment in \(url)")
            // A query alone, or nothing, keeps the path as it was.
            if let first = location.utf8.first, first != UInt8(ascii: "?"), first != UInt8(ascii: "#") {
                check(!url.path.utf8.starts(with: "/../".utf8), "dots in \(url.path) of \(location.debugDescription)")
            }
        }
        check(trail.isAtHome == trail.current.hasSameOrigin(as: start), "home")
    }
    return 0
}
