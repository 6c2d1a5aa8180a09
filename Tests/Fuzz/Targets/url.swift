@testable import WebSocketProtocol

/// A text as a URL. What is accepted must read back the same from its description, and make a request head that our own
/// strict server reads as the same target.
@c(LLVMFuzzerTestOneInput)
public func fuzz(_ data: UnsafePointer<UInt8>?, _ size: Int) -> Int32 {
    let text = String(decoding: UnsafeBufferPointer(start: data, count: size), as: UTF8.self)
    switch WebSocketURL.parse(text) {
    case .failure(let failure):
        check(!failure.text.isEmpty, "a failure without text")
        check(failure.text.utf8.count < 1000, "a failure as long as the input")
        check(failure.offset >= 0 && failure.offset <= text.utf8.count, "an offset outside of the text")
    case .success(let url):
        check(text.utf8.count <= WebSocketURL.maximumLength, "a URL above the limit")
        check(!url.host.isEmpty && url.port > 0, "no host or port")
        check(url.target.utf8.first == UInt8(ascii: "/"), "target \(url.target)")
        check(url.target.utf8.allSatisfy { $0 > 0x20 && $0 < 0x7F && $0 != UInt8(ascii: "#") }, "target \(url.target)")
        check(url.host.utf8.allSatisfy { $0 > 0x20 && $0 < 0x7F }, "host \(url.host)")
        check((url.unixPath == nil) != url.scheme.isUnix, "path of a socket")
        if let path = url.unixPath {
            check(!path.isEmpty && path.utf8.count <= WebSocketURL.maximumUnixPath, "path of a socket")
            check(!path.utf8.contains(0), "NUL in the path of a socket")
        }
        again(url)
        request(url)
    }
    return 0
}

private func again(_ url: WebSocketURL) {
    // Percent-encoding may make it longer than what is accepted.
    guard url.description.utf8.count <= WebSocketURL.maximumLength else { return }
    guard case .success(let read) = WebSocketURL.parse(url.description) else {
        finding("the description \(url.description) cannot be read")
    }
    check(read.description == url.description, "\(url.description) became \(read.description)")
    check(
        read.scheme == url.scheme && read.host == url.host && read.port == url.port && read.target == url.target
            && read.unixPath.map { Array($0.utf8) } == url.unixPath.map { Array($0.utf8) }
            && read.isIPLiteral == url.isIPLiteral, "\(url.description) became another URL")
    check(read.user == nil && read.password == nil, "a secret in \(url.description)")
}

private func request(_ url: WebSocketURL) {
    let nonce = [UInt8](repeating: 7, count: 16)
    guard let handshake = try? ClientHandshake(url: url, protocols: ["BLIP_3"], nonce: nonce) else {
        check(url.user?.utf8.contains(UInt8(ascii: ":")) == true, "\(url) cannot be requested")
        return
    }
    var parser = HTTPHeadParser(.request, maximum: 1 << 20)
    guard case .request(let head, let consumed) = handshake.request.withUnsafeBytes({ parser.feed($0) }) else {
        finding("our own request for \(url) cannot be read")
    }
    check(consumed == handshake.request.count, "bytes behind the head")
    check(head.target == url.target, "target \(head.target)")
    check((head["Authorization"] != nil) == (url.user != nil), "Authorization")
    guard case .accept(let agreed, _) = ServerHandshake.decide(head, protocols: ["BLIP_3"], paths: []) else {
        finding("our own server refuses \(url)")
    }
    check(agreed == "BLIP_3", "subprotocol \(agreed)")
}
