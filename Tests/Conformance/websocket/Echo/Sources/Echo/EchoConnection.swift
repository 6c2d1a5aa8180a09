import Glibc
import Transport
import WebSocketProtocol

/// One WebSocket that sends every text and binary message back.
///
/// It is what an owner of the two layers has to be, and no more: bytes of the stream go to the head parser and the
/// frame parser, their events become frames in a queue. Confined to its loop's thread; the loop keeps it alive by its
/// stream.
final class EchoConnection: StreamDelegate, @unchecked Sendable {
    static let subprotocol = "echo"
    private static let maximumMessage = 64 << 20
    private static let closeTimeout: UInt64 = 5_000_000_000

    /// Text messages go here instead of back.
    var onText: ((String) -> Void)?
    /// Called once, when the stream has ended; the text says why it never opened.
    var onEnd: ((String?) -> Void)?

    private let role: WebSocketRole
    private let loop: EventLoop
    private var stream: Transport.Stream?
    private var heads: HTTPHeadParser
    private var handshake: ClientHandshake?
    private var parser: WebSocketParser
    private var closing: WebSocketCloseHandshake
    private var maskKeys = MaskKeyGenerator(entropy: UnsafeRawBufferPointer(start: nil, count: 0))
    private let timer = EndTimer()
    private var isOpen = false
    private var isClosing = false
    private var problem: String?
    private var output: [UInt8] = []
    private var sent = 0

    init(loop: EventLoop, descriptor: Int32, role: WebSocketRole, handshake: ClientHandshake?) {
        self.loop = loop
        self.role = role
        self.handshake = handshake
        heads = HTTPHeadParser(role == .client ? .response : .request)
        parser = WebSocketParser(role: role, maximumMessage: Self.maximumMessage)
        closing = WebSocketCloseHandshake(role: role, timeout: Self.closeTimeout)
        if role == .client {
            var generator = SystemRandomNumberGenerator()
            let entropy = (0..<32).map { _ in UInt8.random(in: .min ... .max, using: &generator) }
            entropy.withUnsafeBytes { maskKeys = MaskKeyGenerator(entropy: $0) }
        }
        timer.connection = self
        let stream = Transport.Stream(loop: loop, descriptor: descriptor, delegate: self)
        self.stream = stream
        if let handshake { send(handshake.request) }
        stream.startReading()
    }

    // MARK: Receiving

    func stream(_ stream: Transport.Stream, didReceive bytes: UnsafeMutableRawBufferPointer) -> Int {
        var consumed = 0
        if !isOpen {
            guard !isClosing else { return bytes.count }
            consumed = receiveHead(UnsafeRawBufferPointer(bytes))
            guard isOpen else { return consumed }
        }
        while consumed < bytes.count {
            switch parser.next(UnsafeMutableRawBufferPointer(rebasing: bytes[consumed...])) {
            case .incomplete(let needed):
                stream.bytesWanted = needed
                return consumed
            case .consumed(let count):
                consumed += count
            case .text(let payload, let count):
                if let onText {
                    onText(String(decoding: payload, as: UTF8.self))
                } else {
                    send(.text, UnsafeRawBufferPointer(payload))
                }
                consumed += count
            case .binary(let payload, let count):
                send(.binary, UnsafeRawBufferPointer(payload))
                consumed += count
            case .ping(let payload, let count):
                send(.pong, payload)
                consumed += count
            case .pong(_, let count):
                consumed += count
            case .close(let code, _, let count):
                act(on: closing.received(code: code, now: loop.refreshNow()))
                consumed += count
            case .failed(let code, _):
                act(on: closing.fail(code: code, now: loop.refreshNow()))
                return bytes.count
            }
        }
        return consumed
    }

    private func receiveHead(_ bytes: UnsafeRawBufferPointer) -> Int {
        switch heads.feed(bytes) {
        case .incomplete: return 0
        case .request(let head, let consumed):
            switch ServerHandshake.decide(head, protocols: [Self.subprotocol], paths: []) {
            case .accept(_, let response):
                isOpen = true
                send(response)
            case .refuse(_, let response, let text): refuse(response, text)
            }
            return consumed
        case .response(let head, let consumed):
            if let handshake, case .failure(let failure) = handshake.check(head) {
                end(failure.text)
            } else {
                isOpen = true
            }
            return consumed
        case .failed(let status, let text):
            refuse(ServerHandshake.refusal(status: status, text: text), text)
            return bytes.count
        }
    }

    private func refuse(_ response: [UInt8], _ text: String) {
        problem = text
        isClosing = true
        send(response)
        stream?.finishOutput()
    }

    // MARK: Sending

    private func send(_ bytes: [UInt8]) {
        output += bytes
        stream?.requestOutput()
    }

    private func send(_ opcode: WebSocketOpcode, _ payload: UnsafeRawBufferPointer) {
        guard closing.maySend else { return }
        let key = role == .client ? maskKeys.next() : nil
        let size = WebSocketFrame.headerSize(payload: payload.count, masked: key != nil)
        let start = output.count
        output.append(contentsOf: repeatElement(0, count: size))
        output.append(contentsOf: payload)
        output.withUnsafeMutableBytes { all in
            let frame = UnsafeMutableRawBufferPointer(rebasing: all[start...])
            guard let base = frame.baseAddress else { return }
            _ = WebSocketFrame.writeHeader(
                opcode: opcode, final: true, payload: payload.count, maskKey: key, to: base)
            if let key { WebSocketFrame.mask(UnsafeMutableRawBufferPointer(rebasing: frame[size...]), key: key) }
        }
        stream?.requestOutput()
    }

    func stream(_ stream: Transport.Stream, fill buffer: UnsafeMutableRawBufferPointer) -> Int {
        let count = min(buffer.count, output.count - sent)
        output.withUnsafeBytes { all in
            buffer.copyMemory(from: UnsafeRawBufferPointer(rebasing: all[sent..<sent + count]))
        }
        sent += count
        if sent == output.count {
            output = []
            sent = 0
        }
        return count
    }

    func streamDidFlush(_ stream: Transport.Stream) {
        if isClosing, isOpen { act(on: closing.didSend(now: loop.refreshNow())) }
    }

    func streamDidSecure(_ stream: Transport.Stream) {}

    // MARK: Closing

    private func act(on action: WebSocketCloseHandshake.Action) {
        switch action {
        case .none: break
        case .sendClose(let code):
            isClosing = true
            var frame = [UInt8](repeating: 0, count: WebSocketFrame.maximumControlFrame)
            let size = frame.withUnsafeMutableBytes { frame in
                frame.baseAddress.map {
                    WebSocketFrame.writeClose(
                        code: code, reason: UnsafeRawBufferPointer(start: nil, count: 0),
                        maskKey: role == .client ? maskKeys.next() : nil, to: $0)
                } ?? 0
            }
            send(Array(frame[..<size]))
        case .finishOutput: stream?.finishOutput()
        case .drop: return end(nil)
        }
        if let deadline = closing.deadline { loop.schedule(timer, at: deadline) }
    }

    fileprivate func timeOut() { act(on: closing.timeOut(now: loop.refreshNow())) }

    func stream(_ stream: Transport.Stream, didEnd error: TransportError?) {
        end(isOpen ? nil : problem ?? error?.text ?? "the peer ended the connection during the upgrade")
    }

    private func end(_ problem: String?) {
        stream?.close()
        stream = nil
        loop.cancel(timer)
        timer.connection = nil
        let onEnd = self.onEnd
        self.onEnd = nil
        onText = nil
        onEnd?(problem)
    }
}

/// Bounds the closing handshake.
private final class EndTimer: LoopTimer, @unchecked Sendable {
    /// Cleared when the connection ends, which cuts the cycle between the two.
    var connection: EchoConnection?

    override func fire() { connection?.timeOut() }
}
