@testable import WebSocketProtocol

/// The WebSocket parser in both roles: bytes as they come, whole and cut, must lead to the same events; frames that our
/// own writer has made must come back as they were.
@c(LLVMFuzzerTestOneInput)
public func fuzz(_ data: UnsafePointer<UInt8>?, _ size: Int) -> Int32 {
    var input = Input(data, size)
    let mode = input.byte()
    let role: WebSocketRole = mode & 1 == 0 ? .server : .client
    let maximum = [0, 125, 4096, 1 << 20][Int(mode >> 1 & 3)]
    let steps = [1 + Int(input.byte()), 1 + Int(input.byte())]
    let bytes: [UInt8]
    switch mode >> 3 & 3 {
    case 0: bytes = input.rest()
    case 1: bytes = frames(&input, role)
    case 2: return close(&input, role)
    default: return texts(&input)
    }
    let whole = parse(bytes, role, maximum, steps: [.max])
    let cut = parse(bytes, role, maximum, steps: steps)
    check(whole == cut, "whole \(whole), cut \(cut)")
    return 0
}

/// What came of a stream, so that two can be compared. Where fragments and closed connections' bytes were cut does not
/// count.
private enum Outcome: Equatable {
    case message(isText: Bool, [UInt8])
    case ping([UInt8])
    case pong([UInt8])
    case close(UInt16?, [UInt8])
    case failed(UInt16, String)
}

private func parse(_ bytes: [UInt8], _ role: WebSocketRole, _ maximum: Int, steps: [Int]) -> [Outcome] {
    var parser = WebSocketParser(role: role, maximumMessage: maximum)
    var outcomes: [Outcome] = []
    var held: [UInt8] = []
    var taken = 0
    var turn = 0
    var needed = 0
    while true {
        // At least as much as the parser says that it needs, in exactly sized memory.
        let step = steps[turn % steps.count]
        turn += 1
        let more = step < bytes.count - taken ? step : bytes.count - taken
        held += bytes[taken..<taken + more]
        taken += more
        if held.count < needed, taken < bytes.count { continue }
        needed = 0
        var isDone = false
        held = withExact(held) { memory in
            var start = 0
            while true {
                let there = UnsafeMutableRawBufferPointer(rebasing: memory[start...])
                let before = Array(there)
                let consumed: Int
                switch parser.next(there) {
                case .incomplete(let size):
                    check(size > there.count, "needs \(size) of \(there.count) bytes")
                    check(Array(there) == before, "an incomplete frame was changed")
                    check(there.count < 14 || size - 14 <= max(maximum, 125), "waits for \(size) bytes")
                    needed = size
                    return Array(there)
                case .consumed(let size):
                    consumed = size
                case .binary(let payload, let size):
                    outcomes.append(.message(isText: false, Array(payload)))
                    check(payload.count <= maximum, "a message above the limit")
                    consumed = size
                case .text(let payload, let size):
                    outcomes.append(.message(isText: true, Array(payload)))
                    check(payload.count <= maximum, "a message above the limit")
                    check(String(validating: payload, as: UTF8.self) != nil, "a text that is none")
                    consumed = size
                case .ping(let payload, let size):
                    outcomes.append(.ping(Array(payload)))
                    check(payload.count <= 125, "a long ping")
                    consumed = size
                case .pong(let payload, let size):
                    outcomes.append(.pong(Array(payload)))
                    check(payload.count <= 125, "a long pong")
                    consumed = size
                case .close(let code, let reason, let size):
                    outcomes.append(.close(code, Array(reason)))
                    check(reason.count <= 123 && String(validating: reason, as: UTF8.self) != nil, "reason")
                    if let code { check(WebSocketFrame.isValidCloseCode(code), "code \(code)") }
                    consumed = size
                case .failed(let code, let text):
                    outcomes.append(.failed(code, "\(text)"))
                    check([1002, 1007, 1009, 1011].contains(code), "code \(code)")
                    guard case .failed(let again, _) = parser.next(there), again == code else {
                        finding("goes on after a failure")
                    }
                    isDone = true
                    return []
                }
                check(consumed > 0 && consumed <= there.count, "consumed \(consumed) of \(there.count)")
                start += consumed
                if there.count % 3 == 0 { parser.releaseIdleMemory() }
            }
        }
        if isDone || taken == bytes.count { return outcomes }
    }
}

/// Frames from our own writer, and checks of it.
private func frames(_ input: inout Input, _ role: WebSocketRole) -> [UInt8] {
    var output: [UInt8] = []
    let key: UInt32? = role == .server ? UInt32(input.byte()) &* 0x0403_0201 ^ 0x5A00_00A5 : nil
    while !input.isEmpty, output.count < 1 << 18 {
        let shape = input.byte()
        let opcodes: [WebSocketOpcode] = [.binary, .text, .continuation, .ping, .pong, .close, .binary, .continuation]
        let opcode = opcodes[Int(shape & 7)]
        var payload = input.take(Int(input.byte()))
        if shape & 0x40 != 0 { payload += [UInt8](repeating: shape, count: input.word()) }
        let room = WebSocketFrame.maximumControlFrame
        if opcode == .close, shape & 8 != 0 {
            let code = UInt16(truncatingIfNeeded: input.word())
            let reason = Array(String(decoding: payload, as: UTF8.self).utf8)
            var frame = [UInt8](repeating: 0, count: room)
            let size = frame.withUnsafeMutableBytes { target -> Int in
                guard let base = target.baseAddress else { return 0 }
                return reason.withUnsafeBytes {
                    WebSocketFrame.writeClose(
                        code: code, reason: $0, maskKey: key, to: base)
                }
            }
            check(size <= room, "a close frame of \(size) bytes")
            output += frame.prefix(size)
            let read = parse(Array(frame.prefix(size)), role, 0, steps: [.max])
            if WebSocketFrame.isValidCloseCode(code) {
                guard case .close(code, let text)? = read.first else { finding("our own close frame is \(read)") }
                check(reason.starts(with: text) && text.count >= min(reason.count, 120), "a cut reason")
            } else {
                check(read == [.close(nil, [])], "our own close frame is \(read)")
            }
            continue
        }
        var header = [UInt8](repeating: 0, count: WebSocketFrame.headerSize(payload: payload.count, masked: key != nil))
        let size = header.withUnsafeMutableBytes { target -> Int in
            guard let base = target.baseAddress else { return 0 }
            return WebSocketFrame.writeHeader(
                opcode: opcode, final: shape & 0x10 == 0, payload: payload.count, maskKey: key, to: base)
        }
        check(size == header.count, "a header of \(size) instead of \(header.count) bytes")
        if let key { mask(&payload, key, piece: Int(shape)) }
        output += header + payload
    }
    return output
}

/// Masks in two pieces and compares with the plain rule.
private func mask(_ payload: inout [UInt8], _ key: UInt32, piece: Int) {
    let plain = payload
    let cut = min(piece, payload.count)
    payload.withUnsafeMutableBytes { bytes in
        WebSocketFrame.mask(UnsafeMutableRawBufferPointer(rebasing: bytes[..<cut]), key: key)
        WebSocketFrame.mask(UnsafeMutableRawBufferPointer(rebasing: bytes[cut...]), key: key, offset: cut)
    }
    withUnsafeBytes(of: key) { key in
        for index in plain.indices {
            check(payload[index] == plain[index] ^ key[index & 3], "byte \(index) is masked wrongly")
        }
    }
}

/// The closing handshake: any order of calls ends, and ends once.
private func close(_ input: inout Input, _ role: WebSocketRole) -> Int32 {
    let timeout = UInt64(input.word())
    var closing = WebSocketCloseHandshake(role: role, timeout: timeout)
    var now: UInt64 = 0
    var owed = false
    var sends = 0
    var ended = false
    while !input.isEmpty {
        now &+= UInt64(input.byte())
        let action: WebSocketCloseHandshake.Action
        switch input.byte() % 7 {
        case 0: action = closing.close(code: input.flag() ? 1000 : nil, now: now)
        case 1: action = closing.fail(code: 1002, now: now)
        case 2: action = closing.received(code: input.flag() ? 1001 : nil, now: now)
        case 3:
            action = owed ? closing.didSend(now: now) : .none
            owed = false
        case 4:
            closing.transportEnded()
            action = .none
        case 5: action = closing.timeOut(now: now)
        default: action = closing.timeOut(now: .max)
        }
        switch action {
        case .none: break
        case .sendClose:
            sends += 1
            owed = true
            check(!ended, "a close frame after the end")
        case .finishOutput: check(!ended && closing.sentCode != nil, "output ends without a close frame")
        case .drop: check(!ended && closing.isEnded, "dropped twice")
        }
        check(sends <= 1, "\(sends) close frames")
        check(!ended || closing.isEnded, "lives again")
        ended = closing.isEnded
        check(ended || closing.sentCode == nil || closing.deadline != nil, "closing without a bound")
        check(closing.maySend == (sends == 0 && !ended), "maySend")
    }
    return 0
}

/// UTF-8 in pieces, compared with the standard library.
private func texts(_ input: inout Input) -> Int32 {
    let step = 1 + Int(input.byte())
    let bytes = input.rest()
    let isText = String(validating: bytes, as: UTF8.self) != nil
    check(bytes.withUnsafeBytes { UTF8Validator.isValid($0) } == isText, "judged wrongly as a whole")
    var validator = UTF8Validator()
    var at = 0
    var isGood = true
    while at < bytes.count, isGood {
        let piece = Array(bytes[at..<min(bytes.count, at + step)])
        isGood = withExact(piece) { validator.consume(UnsafeRawBufferPointer($0)) }
        at += piece.count
    }
    check((isGood && validator.isComplete) == isText, "judged wrongly in pieces of \(step)")
    return 0
}
