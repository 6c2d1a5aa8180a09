@testable import WebSocketProtocol

/// HTTP heads of both kinds, whole and in pieces, and what both handshakes make of them.
@c(LLVMFuzzerTestOneInput)
public func fuzz(_ data: UnsafePointer<UInt8>?, _ size: Int) -> Int32 {
    var input = Input(data, size)
    let mode = input.byte()
    let kind: HTTPHeadParser.Kind = mode & 1 == 0 ? .request : .response
    let maximum = mode & 2 == 0 ? 16384 : input.word()
    let step = 1 + Int(input.byte())
    if mode & 4 != 0 { return client(&input) }
    let bytes = input.rest()
    withExact(bytes) { memory in
        let whole = read(UnsafeRawBufferPointer(memory), kind, maximum, step: .max)
        let cut = read(UnsafeRawBufferPointer(memory), kind, maximum, step: step)
        check(whole == cut, "whole \(whole), in pieces of \(step) \(cut)")
    }
    return 0
}

/// What came of a stream of heads, so that two can be compared.
private enum Outcome: Equatable {
    case request(HTTPRequestHead, Int)
    case response(HTTPResponseHead, Int)
    case failed(Int, String)
}

private func read(
    _ bytes: UnsafeRawBufferPointer, _ kind: HTTPHeadParser.Kind, _ maximum: Int, step: Int
) -> [Outcome] {
    var parser = HTTPHeadParser(kind, maximum: maximum)
    var outcomes: [Outcome] = []
    var start = 0
    var end = 0
    while true {
        end = step < bytes.count - end ? end + step : bytes.count
        feeding: while true {
            let there = UnsafeRawBufferPointer(rebasing: bytes[start..<end])
            let (head, consumed): (Outcome, Int)
            switch parser.feed(there) {
            case .incomplete:
                check(there.count < maximum || maximum == 0, "waits for more than the limit")
                break feeding
            case .failed(let status, let text):
                check(!text.isEmpty && text.utf8.count < 300, "text of a failure")
                check(kind == .response ? status == 0 : (400...599).contains(status), "status \(status)")
                return outcomes + [.failed(status, text)]
            case .request(let request, let size):
                (head, consumed) = (.request(request, size), size)
                if outcomes.isEmpty { server(request) }
            case .response(let response, let size):
                (head, consumed) = (.response(response, size), size)
                if outcomes.isEmpty { answer(response) }
            }
            check(consumed > 0 && consumed <= there.count && consumed <= maximum, "consumed \(consumed)")
            outcomes.append(head)
            start += consumed
        }
        if end == bytes.count { return outcomes }
    }
}

/// Whatever a request says, our answer is one head that our own client can read, and its body.
private func server(_ request: HTTPRequestHead) {
    let headers = request.headers.lines.prefix(2).map { $0 }
    let decision = ServerHandshake.decide(
        request, protocols: ["BLIP_3+CBMobile_3", "BLIP_3", "BLIP"],
        paths: request.target.utf8.count % 2 == 0 ? [] : ["/db"],
        headers: headers)
    let (bytes, expected): ([UInt8], Int)
    switch decision {
    case .accept(let subprotocol, let response):
        (bytes, expected) = (response, 101)
        check(request.method == "GET" && !request.hasBody, "accepts what is no upgrade")
        check(["BLIP_3+CBMobile_3", "BLIP_3", "BLIP"].contains(subprotocol), "subprotocol \(subprotocol)")
        check(request.headers.elements("Sec-WebSocket-Protocol").contains(subprotocol), "not asked for")
    case .refuse(let status, let response, let text):
        (bytes, expected) = (response, status)
        check((400...599).contains(status) && !text.isEmpty, "status \(status)")
        check(text.utf8.count < 1000, "an answer that grows with the request")
    }
    var parser = HTTPHeadParser(.response, maximum: 1 << 20)
    guard case .response(let head, let consumed) = bytes.withUnsafeBytes({ parser.feed($0) }) else {
        finding("our own answer cannot be read")
    }
    check(head.status == expected, "status \(head.status) instead of \(expected)")
    // The program's own headers may be any; without them, the body must be what the head says.
    guard !headers.contains(where: { HTTPSyntax.equal($0.name, "Content-Length") }) else { return }
    let body = expected == 101 || request.method == "HEAD" ? 0 : Int(head["Content-Length"] ?? "") ?? -1
    check(body == bytes.count - consumed, "a body of \(bytes.count - consumed) bytes instead of \(body)")
}

/// An answer that nobody could know the right digest for must never complete an upgrade.
private func answer(_ response: HTTPResponseHead) {
    guard case .success(let url) = WebSocketURL.parse("ws://localhost/"),
        let handshake = try? ClientHandshake(
            url: url, protocols: ["BLIP_3", "BLIP"], nonce: [UInt8](repeating: 0, count: 16))
    else { finding("no handshake") }
    switch handshake.check(response) {
    case .success(let agreed):
        check(response.status == 101, "status \(response.status)")
        check(agreed == "BLIP_3" || agreed == "BLIP", "subprotocol \(agreed)")
        check(response.all("Sec-WebSocket-Accept") == ["ICX+Yqv66kxgM0FcWaLWlFLwTAI="], "any digest is accepted")
        check(response.headers.elements("Sec-WebSocket-Protocol") == [agreed], "not what the server said")
    case .failure(let failure):
        check(!failure.text.isEmpty && failure.text.utf8.count < 1500, "text of a failure")
    }
}

/// Headers, user agent and subprotocols that a program gives: refused, or a request that our strict parser reads as it
/// was meant. Nothing given can add a line to the head.
private func client(_ input: inout Input) -> Int32 {
    func text(_ input: inout Input) -> String {
        String(decoding: input.take(Int(input.byte() % 48)), as: UTF8.self)
    }
    let protocols = (0..<input.below(4)).map { _ in text(&input) }
    let headers = (0..<input.below(5)).map { _ in HTTPHeader(text(&input), text(&input)) }
    let agent = input.flag() ? text(&input) : nil
    let nonce = input.take(16)
    guard case .success(let url) = WebSocketURL.parse("ws://user:password@localhost:4984/db?x") else {
        finding("no URL")
    }
    let handshake: ClientHandshake
    do throws(UpgradeFailure) {
        handshake = try ClientHandshake(
            url: url, protocols: protocols, headers: headers, userAgent: agent, nonce: nonce)
    } catch {
        check(error.kind == .argument && !error.text.isEmpty, "\(error.kind)")
        return 0
    }
    var parser = HTTPHeadParser(.request, maximum: 1 << 20)
    switch handshake.request.withUnsafeBytes({ parser.feed($0) }) {
    case .request(let head, let consumed):
        check(consumed == handshake.request.count, "bytes behind the head")
        check(head.target == "/db?x" && head.method == "GET", "target \(head.target)")
        check(head.headers.elements("Sec-WebSocket-Protocol") == protocols, "subprotocols")
        let own = headers.filter { !HTTPSyntax.equal($0.name, "Host") }.count
        let agents = agent != nil && HTTPHeaders(headers)["User-Agent"] == nil ? 1 : 0
        let users = HTTPHeaders(headers)["Authorization"] == nil ? 1 : 0
        check(head.headers.lines.count == 6 + own + agents + users, "\(head.headers.lines.count) lines")
        guard
            case .accept(let chosen, let response) = ServerHandshake.decide(head, protocols: protocols, paths: ["/db"])
        else { finding("our own server refuses it") }
        check(chosen == protocols.first, "subprotocol \(chosen)")
        var reader = HTTPHeadParser(.response, maximum: 1 << 20)
        guard case .response(let answer, _) = response.withUnsafeBytes({ reader.feed($0) }),
            case .success(let agreed) = handshake.check(answer)
        else { finding("our own client does not take our own server's answer") }
        check(agreed == chosen, "subprotocol \(agreed)")
    case .failed(_, let text):
        // What may be sent in a Host line is the program's affair.
        check(headers.contains { HTTPSyntax.equal($0.name, "Host") }, "our own request cannot be read: \(text)")
    default:
        finding("our own request is no head")
    }
    return 0
}
