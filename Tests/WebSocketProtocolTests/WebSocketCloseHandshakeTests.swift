import Testing
import WebSocketProtocol

@Suite("The closing handshake")
struct WebSocketCloseHandshakeTests {
    @Test("We close: our frame, the peer's answer, then the server ends the transport and the client waits")
    func ours() {
        for role in [WebSocketRole.client, .server] {
            var close = WebSocketCloseHandshake(role: role, timeout: 100)
            #expect(close.maySend && close.deadline == nil)
            #expect(close.close(code: 1000, now: 10) == .sendClose(code: 1000))
            #expect(!close.maySend && close.deadline == 110)
            #expect(close.close(code: 1001, now: 20) == .none)
            #expect(close.didSend(now: 20) == .none)
            #expect(close.timeOut(now: 109) == .none)
            #expect(close.received(code: 1000, now: 60) == (role == .server ? .finishOutput : .none))
            #expect(close.isClean && !close.isEnded && close.deadline == 160)
            close.transportEnded()
            #expect(close.isEnded && close.isClean && close.deadline == nil)
            #expect(close.timeOut(now: 1000) == .none)
        }
    }

    @Test("The peer closes: its code is answered")
    func theirs() {
        var close = WebSocketCloseHandshake(role: .client, timeout: 100)
        #expect(close.received(code: 4001, now: 5) == .sendClose(code: 4001))
        #expect(!close.maySend && !close.isClean)
        #expect(close.received(code: 1000, now: 6) == .none)
        #expect(close.didSend(now: 7) == .none)
        #expect(close.isClean && close.receivedCode == 4001 && close.sentCode == 4001)
        var server = WebSocketCloseHandshake(role: .server, timeout: 100)
        #expect(server.received(code: nil, now: 5) == .sendClose(code: nil))
        #expect(server.receivedCode == 1005)
        #expect(server.didSend(now: 7) == .finishOutput)
    }

    @Test("Both close at once: no second frame is sent")
    func both() {
        var close = WebSocketCloseHandshake(role: .server, timeout: 100)
        #expect(close.close(code: 1001, now: 1) == .sendClose(code: 1001))
        #expect(close.received(code: 1000, now: 2) == .none)
        #expect(close.didSend(now: 3) == .finishOutput)
        #expect(close.isClean)
    }

    @Test("A peer that does not answer is dropped at the deadline, once")
    func silence() {
        var close = WebSocketCloseHandshake(role: .client, timeout: 100)
        #expect(close.timeOut(now: .max) == .none)
        #expect(close.close(code: nil, now: 50) == .sendClose(code: nil))
        #expect(close.timeOut(now: 150) == .drop)
        #expect(close.isEnded && !close.isClean)
        #expect(close.timeOut(now: 151) == .none)
        #expect(close.received(code: 1000, now: 152) == .none)
        #expect(close.didSend(now: 152) == .none)
        var late = WebSocketCloseHandshake(role: .client, timeout: .max)
        _ = late.close(code: 1000, now: 5)
        #expect(late.deadline == .max)
    }

    @Test("A breach of the protocol is told and not waited for")
    func failure() {
        var close = WebSocketCloseHandshake(role: .client, timeout: 100)
        #expect(close.fail(code: 1002, now: 1) == .sendClose(code: 1002))
        #expect(close.fail(code: 1002, now: 1) == .none)
        #expect(close.didSend(now: 2) == .finishOutput)
        #expect(!close.isClean)
        var second = WebSocketCloseHandshake(role: .client, timeout: 100)
        _ = second.close(code: 1000, now: 1)
        _ = second.didSend(now: 1)
        #expect(second.fail(code: 1002, now: 2) == .finishOutput)
    }
}
