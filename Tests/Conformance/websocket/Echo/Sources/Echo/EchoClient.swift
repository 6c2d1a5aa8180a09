import Transport
import WebSocketProtocol

/// Goes through the cases of a fuzzing server: asks how many there are, echoes in each, then says that it has done all.
final class EchoClient: @unchecked Sendable {
    private let loop: EventLoop
    private let url: String
    private var connector: Connector?
    private var count = 0
    private var next = 1
    private(set) var problem: String?

    init(loop: EventLoop, url: String) {
        self.loop = loop
        self.url = url
    }

    func start() {
        open("/getCaseCount") { [self] in
            count = Int($0) ?? 0
        } then: { [self] in
            runNext()
        }
    }

    private func runNext() {
        guard next <= count else {
            open("/updateReports", then: { [self] in loop.stop() })
            return
        }
        let target = "/runCase?case=\(next)&agent=libblip"
        next += 1
        open(target, then: { [self] in runNext() })
    }

    private func open(
        _ target: String, onText: ((String) -> Void)? = nil, then: @escaping () -> Void
    ) {
        let text = url + target
        do {
            let url = try WebSocketURL.parse(text).get()
            var generator = SystemRandomNumberGenerator()
            let nonce = (0..<16).map { _ in UInt8.random(in: .min ... .max, using: &generator) }
            let handshake = try ClientHandshake(url: url, protocols: [EchoConnection.subprotocol], nonce: nonce)
            connector = Connector.connect(loop: loop, host: url.host, port: url.port) { [self] result in
                connector = nil
                switch result {
                case .failure(let error): fail(error.text)
                case .success(let descriptor):
                    let connection = EchoConnection(
                        loop: loop, descriptor: descriptor, role: .client, handshake: handshake)
                    connection.onText = onText
                    connection.onEnd = { problem in
                        if let problem { self.fail(problem) } else { then() }
                    }
                }
            }
        } catch {
            fail("\(text): \(error)")
        }
    }

    private func fail(_ text: String) {
        problem = text
        loop.stop()
    }
}
