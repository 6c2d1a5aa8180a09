@testable import WebSocketProtocol

/// What a proxy answers, whole and in pieces, which must lead to the same; proxies' URLs, and lists of hosts without one.
///
/// The first byte chooses: 0 and 1 CONNECT without and with credentials, 2 and 3 SOCKS likewise, 4 a URL, 5 a list.
@c(LLVMFuzzerTestOneInput)
public func fuzz(_ data: UnsafePointer<UInt8>?, _ size: Int) -> Int32 {
    var input = Input(data, size)
    let kind = input.below(6)
    switch kind {
    case 4: url(String(decoding: input.take(input.left), as: UTF8.self))
    case 5:
        let host = String(decoding: input.take(input.below(40)), as: UTF8.self)
        let list = String(decoding: input.take(input.left), as: UTF8.self)
        _ = ProxyEnvironment.matches(list, host: host)
        check(ProxyEnvironment.matches(list + ",*", host: host), "a star that does not match")
    default:
        let answer = input.take(input.left)
        let whole = run(kind, answer, piece: answer.count)
        let bytewise = run(kind, answer, piece: 1)
        check(whole == bytewise, "\(whole) whole, \(bytewise) byte by byte")
    }
    return 0
}

private func handshake(_ kind: Int) -> ProxyHandshake {
    let target = ProxyTarget(host: "server.test", port: 443)
    let user = kind & 1 == 0 ? nil : "me"
    if kind >= 2 { return .socks(SOCKSHandshake(target: target, user: user, password: "secret")) }
    return .connect(
        ConnectHandshake(
            target: target, userAgent: nil, maximumHead: 2048,
            credentials: user.map { .password(user: $0, SecretBytes(Array("secret".utf8))) },
            asks: kind == 1, entropy: { [UInt8](repeating: 1, count: 16) }))
}

/// What was sent and how it ended, the bytes that are left included.
private func run(_ kind: Int, _ answer: [UInt8], piece: Int) -> [[UInt8]] {
    var handshake = handshake(kind)
    var trace = [handshake.greeting()]
    var held = [UInt8]()
    var position = 0
    var answers = 0
    for _ in 0..<100_000 {
        let step = withExact(held) { handshake.receive(UnsafeRawBufferPointer($0)) }
        switch step {
        case .more(let consumed):
            check(consumed >= 0 && consumed <= held.count, "\(consumed) of \(held.count) bytes taken")
            held.removeFirst(consumed)
            if consumed > 0, !held.isEmpty { continue }
            guard position < answer.count else { return trace + [Array("open".utf8)] }
            let end = min(position + max(piece, 1), answer.count)
            held += answer[position..<end]
            position = end
        case .send(let bytes, let consumed):
            check(consumed >= 0 && consumed <= held.count, "\(consumed) of \(held.count) bytes taken")
            held.removeFirst(consumed)
            trace.append(bytes)
            // Each answer of the program begins anew.
            check(trace.count < 10 * (answers + 1), "asks for ever")
        case .connected(let consumed):
            check(consumed >= 0 && consumed <= held.count, "\(consumed) of \(held.count) bytes taken")
            return trace + [Array(held.dropFirst(consumed)) + Array(answer[position...])]
        case .again: return trace + [Array("again".utf8)]
        case .asks(let list, _, let consumed):
            check(consumed >= 0 && consumed <= held.count, "\(consumed) of \(held.count) bytes taken")
            held.removeFirst(consumed)
            trace.append(Array("asks".utf8))
            answers += 1
            if answers > 3 { return trace }
            let step = handshake.goOn { $0.answer(.password(user: "me", SecretBytes(Array("secret".utf8))), to: list) }
            if case .send(let bytes, _) = step { trace.append(bytes) }
            if case .again = step { return trace + [Array("again".utf8)] }
        case .failed(let failure):
            check(!failure.text.isEmpty && failure.text.utf8.count < 5000, "a failure's text")
            // The proxy may have said the word itself.
            let hasSaidIt = String(decoding: answer, as: UTF8.self).contains("secret")
            check(hasSaidIt || !failure.text.contains("secret"), "a secret in a text")
            return trace + [Array("failed".utf8)]
        }
    }
    finding("does not end")
}

private func url(_ text: String) {
    guard case .success(let url) = ProxyURL.parse(text) else { return }
    check(!url.host.isEmpty && url.port > 0, "no host or port")
    guard case .success(let again) = ProxyURL.parse(url.description) else {
        finding("the description \(url.description) cannot be read")
    }
    check(
        again.kind == url.kind && again.host == url.host && again.port == url.port,
        "\(text): \(url.description) became \(again.description)")
}
