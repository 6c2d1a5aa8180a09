import WebSocketProtocol

/// What a connection has while HTTP is spoken.
final class Upgrade {
    var parser: HTTPHeadParser
    var client: ClientHandshake?
    var output: [UInt8]
    /// The subprotocol that a server has chosen.
    var subprotocol = ""
    /// A plain HTTP request for the listener's pages.
    var page: HTTPRequestHead?
    /// It is the dashboard's page that connects.
    var isDashboard = false
    /// The connection ends once the output is flushed.
    var endsAfterOutput: Failure?

    init(parser: HTTPHeadParser, client: ClientHandshake? = nil) {
        self.parser = parser
        var client = client
        output = client?.takeRequest() ?? []
        self.client = client
    }

    deinit { output.wipe() }

    /// Moves the next bytes of the output; how many. What is gone is overwritten: it may hold secrets.
    func moveOutput(to buffer: UnsafeMutableRawBufferPointer) -> Int {
        let count = min(buffer.count, output.count - sent)
        output.withUnsafeBytes { buffer.copyMemory(from: UnsafeRawBufferPointer(rebasing: $0[sent..<sent + count])) }
        sent += count
        if sent == output.count {
            output.wipe()
            sent = 0
        }
        return count
    }

    private var sent = 0

    /// Adds lines to an answer that was not sent yet; invalid ones are left out.
    func add(_ headers: [HTTPHeader]) {
        guard !headers.isEmpty, sent == 0, output.count > 2 else { return }
        output.removeLast(2)
        for header in headers where header.isValid {
            output += Array("\(header.name): \(header.value)\r\n".utf8)
        }
        output += [0x0D, 0x0A]
    }
}
