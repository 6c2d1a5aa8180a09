@testable import WebSocketProtocol

/// Lines of Set-Cookie from several places, at several times. What goes back must fit one header line, stay at its
/// host, and never leave TLS if it is for TLS alone.
@c(LLVMFuzzerTestOneInput)
public func fuzz(_ data: UnsafePointer<UInt8>?, _ size: Int) -> Int32 {
    var input = Input(data, size)
    let places = [
        "ws://h.example/", "wss://h.example/a/b", "wss://x.h.example/a", "ws://h.co.uk/", "ws://127.0.0.1/",
        "ws+unix://%2Fs/", "ws://localhost/a/", "wss://other.example/",
    ]
    let urls = places.compactMap { try? WebSocketURL.parse($0).get() }
    var jar = CookieJar()
    var now: Int64 = 1_800_000_000
    if input.flag() { _ = CookieDate.parse(input.take(input.below(64))) }
    var wasInsecure = true
    while !input.isEmpty {
        let place = input.below(urls.count)
        now += Int64(input.byte()) * Int64(input.byte())
        let line = String(decoding: input.take(Int(input.byte())), as: UTF8.self)
        wasInsecure = wasInsecure && !urls[place].isSecure
        _ = jar.set(line, from: urls[place], now: now)
        check(jar.count <= CookieJar.maximumCookies, "\(jar.count) cookies")
        for (index, url) in urls.enumerated() {
            guard let header = jar.header(for: url, now: now) else { continue }
            check(header.count <= CookieJar.maximumHeader, "\(header.count) bytes")
            check(header.bytes.allSatisfy { HTTPSyntax.isValue($0) && $0 != UInt8(ascii: "\r") }, "a control character")
            if index == 7 { check(!wasInsecure, "a cookie of another host") }
        }
    }
    if wasInsecure {
        check(jar.header(for: urls[7], now: now) == nil, "a cookie of another host")
    }
    return 0
}
