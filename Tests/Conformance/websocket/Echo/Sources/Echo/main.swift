// A thin echo on the WebSocket layer, for conformance suites.
//
//     Echo server          listens on a free port of the loopback interface and prints its URL
//     Echo client URL      goes through the cases of a fuzzing server
import Glibc
import Transport

func fail(_ text: String) -> Never {
    let line = Array("Echo: \(text)\n".utf8)
    _ = write(2, line, line.count)
    exit(1)
}

do {
    let loop = try EventLoop()
    let arguments = CommandLine.arguments
    if arguments.count == 2, arguments[1] == "server" {
        let acceptor = try Acceptor.bind(loop: loop, host: "127.0.0.1", port: 0)
        acceptor.onAccept = { descriptor, _ in
            _ = EchoConnection(loop: loop, descriptor: descriptor, role: .server, handshake: nil)
        }
        loop.post { acceptor.start() }
        print("ws://127.0.0.1:\(acceptor.port)/")
        fflush(nil)
        loop.run()
    } else if arguments.count == 3, arguments[1] == "client" {
        let client = EchoClient(loop: loop, url: arguments[2])
        loop.post { client.start() }
        loop.run()
        if let problem = client.problem { fail(problem) }
    } else {
        fail("usage: Echo server, or Echo client URL")
    }
} catch {
    fail("\(error)")
}
