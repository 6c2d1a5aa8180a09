@testable import WebSocketProtocol

/// The first byte chooses: a list of challenges and what answers it, credentials that a client has sent, or the body of
/// a refusal. Nothing may trap, what is read must be within the limits, and what is sent must be readable.
@c(LLVMFuzzerTestOneInput)
public func fuzz(_ data: UnsafePointer<UInt8>?, _ size: Int) -> Int32 {
    var input = Input(data, size)
    switch input.below(4) {
    case 0: challenges(&input)
    case 1: credentials(&input)
    case 2: body(&input)
    default: basic(&input)
    }
    return 0
}

private func challenges(_ input: inout Input) {
    let isToken = input.flag()
    let lines = input.rest().split(separator: 0x0A, omittingEmptySubsequences: false).prefix(4)
    let values = lines.map { String(decoding: $0, as: UTF8.self) }
    let secret = SecretBytes("s3cr3t")
    var authenticator = HTTPAuthenticator(
        credentials: isToken ? .token(secret) : .password(user: "\u{E4} \"u", secret), isPreemptive: false)
    let response = HTTPResponseHead(
        status: 401, reason: "", headers: HTTPHeaders(values.map { HTTPHeader("WWW-Authenticate", $0) }))
    for round in 0..<8 {
        switch authenticator.receive(response) {
        case .malformed(let text):
            check(!text.isEmpty && !text.contains("s3cr3t"), text)
            return
        case .unanswered(let list, let text):
            check(!list.isEmpty && list.count <= HTTPChallengeReader.maximumChallenges, "\(list.count) challenges")
            check(!text.isEmpty && !text.contains("s3cr3t"), text)
            for challenge in list {
                check(HTTPSyntax.isToken(challenge.scheme.utf8), "scheme \(challenge.scheme)")
                check(challenge.token68 == nil || challenge.parameters.isEmpty, "token and parameters")
                check(challenge.parameters.count <= HTTPChallengeReader.maximumParameters, "too many parameters")
            }
            return
        case .retry:
            check(round < 7, "an endless dialogue")
            guard let header = authenticator.header(method: "GET", uri: "/x", entropy: [UInt8](repeating: 1, count: 16))
            else { continue }
            let text = String(decoding: header.bytes, as: UTF8.self)
            check(HTTPHeader("Authorization", text).isValid, "a header that cannot be sent")
            check(!text.contains("s3cr3t"), "the password in clear")
            guard case .success(let sent) = HTTPChallenge.parseCredentials(text) else {
                finding("our own credentials cannot be read: \(text)")
            }
            if sent.scheme == "digest", sent["userhash"] == nil {
                check(DigestChallenge.user(of: sent) == "\u{E4} \"u", "another user in \(text)")
                check(
                    DigestChallenge.check(sent, password: secret, method: "GET", target: "/x"),
                    "our own answer does not fit: \(text)")
            }
        }
    }
}

private func credentials(_ input: inout Input) {
    let text = String(decoding: input.rest(), as: UTF8.self)
    guard case .success(let one) = HTTPChallenge.parseCredentials(text) else { return }
    if let (user, password) = BasicCredentials.read(one) {
        check(!user.utf8.contains(UInt8(ascii: ":")), "a colon in \(user)")
        let again = BasicCredentials.header(user: user, password: password)
        let token = again.map { String(decoding: $0.bytes.dropFirst(6), as: UTF8.self) }
        check(token == one.token68, "another form of \(text)")
    }
    _ = DigestChallenge.user(of: one)
    _ = DigestChallenge.check(one, password: SecretBytes("p"), method: "GET", target: "/")
}

private func basic(_ input: inout Input) {
    let user = String(decoding: input.take(Int(input.byte())), as: UTF8.self)
    let password = SecretBytes(input.rest())
    guard let header = BasicCredentials.header(user: user, password: password) else { return }
    guard case .success(let one) = HTTPChallenge.parseCredentials(String(decoding: header.bytes, as: UTF8.self)) else {
        finding("our own credentials cannot be read")
    }
    guard let read = BasicCredentials.read(one) else {
        check(String(validating: password.bytes, as: UTF8.self) == nil, "\(one.token68 ?? "") is refused")
        return
    }
    check(read.user.utf8.elementsEqual(user.utf8) && read.password.equals(password), "another user or password")
}

private func body(_ input: inout Input) {
    let shape = input.below(4)
    let step = max(1, input.below(7))
    let maximum = input.word()
    var lines: [HTTPHeader] = []
    if shape & 1 != 0 { lines.append(HTTPHeader("Transfer-Encoding", "chunked")) }
    if shape & 2 != 0 { lines.append(HTTPHeader("Content-Length", String(input.word()))) }
    let head = HTTPResponseHead(status: 401, reason: "", headers: HTTPHeaders(lines))
    let bytes = input.rest()
    var whole = HTTPBodySkipper(head, maximum: maximum)
    let taken = bytes.withUnsafeBytes { whole.feed($0) }
    check(taken >= 0 && taken <= bytes.count, "took \(taken) of \(bytes.count)")
    check(taken <= maximum + 1 || whole.state == .unusable, "more than the limit")
    check(whole.state != .reading || taken == bytes.count, "left bytes")
    var pieces = HTTPBodySkipper(head, maximum: maximum)
    var count = 0
    while count < bytes.count, pieces.state == .reading {
        let piece = Array(bytes[count..<min(bytes.count, count + step)])
        count += withExact(piece) { pieces.feed(UnsafeRawBufferPointer($0)) }
    }
    check(pieces.state == whole.state, "another end in pieces")
    check(whole.state == .unusable || count == taken, "another length in pieces")
}
