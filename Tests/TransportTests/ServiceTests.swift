import CSystem
import Foundation
import Testing

@testable import Transport

/// SRV records, from a name server of the test's own.
@Suite(.serialized) struct ServiceTests {
    /// Answers each query over UDP with what it is given for the name; 127.0.0.1 only.
    private final class NameServer: @unchecked Sendable {
        let port: UInt16
        private let descriptor: Int32
        private let thread: Thread

        init(_ answer: @escaping @Sendable (String) -> [UInt8]) throws {
            descriptor = socket(AF_INET, Int32(SOCK_DGRAM.rawValue), 0)
            var address = sockaddr_in()
            address.sin_family = sa_family_t(AF_INET)
            address.sin_addr.s_addr = UInt32(0x7f00_0001).bigEndian
            var size = socklen_t(MemoryLayout<sockaddr_in>.size)
            let socket = descriptor
            let bound = withUnsafeMutablePointer(to: &address) {
                $0.withMemoryRebound(to: sockaddr.self, capacity: 1) {
                    bind(socket, $0, size) == 0 && getsockname(socket, $0, &size) == 0
                }
            }
            guard bound else { throw TestFailure("no port for a name server") }
            port = UInt16(bigEndian: address.sin_port)
            thread = Thread {
                var query = [UInt8](repeating: 0, count: 1024)
                while true {
                    var peer = sockaddr_storage()
                    var length = socklen_t(MemoryLayout<sockaddr_storage>.size)
                    withUnsafeMutablePointer(to: &peer) {
                        $0.withMemoryRebound(to: sockaddr.self, capacity: 1) { peer in
                            let count = recvfrom(socket, &query, query.count, 0, peer, &length)
                            guard count > 12 else { return }
                            let reply = Self.reply(to: Array(query[0..<count]), answer)
                            _ = sendto(socket, reply, reply.count, 0, peer, length)
                        }
                    }
                    if query[0] == 0, query[1] == 0, query[2] == 0xFF { return }
                }
            }
            thread.start()
        }

        private static func reply(to query: [UInt8], _ answer: (String) -> [UInt8]) -> [UInt8] {
            var labels = [String]()
            var at = 12
            while at < query.count, query[at] > 0 {
                let end = min(at + 1 + Int(query[at]), query.count)
                labels.append(String(decoding: query[(at + 1)..<end], as: UTF8.self))
                at = end
            }
            let question = query[12..<min(at + 5, query.count)]
            let records = answer(labels.joined(separator: "."))
            let count = records.isEmpty ? 0 : records[0]
            // A negative answer, or records; the first byte is their number, 255: the name does not exist.
            let code: UInt8 = count == 255 ? 0x83 : 0x80
            var reply = Array(query[0..<2])
            reply += [0x81, code, 0, 1, 0, count == 255 ? 0 : count, 0, 0, 0, 0]
            reply += question
            reply += records.dropFirst()
            return reply
        }

        deinit { close(descriptor) }
    }

    private static func record(_ priority: UInt16, _ weight: UInt16, _ port: UInt16, _ host: String) -> [UInt8] {
        func bytes(_ value: UInt16) -> [UInt8] { [UInt8(value >> 8), UInt8(value & 0xFF)] }
        var data = bytes(priority) + bytes(weight) + bytes(port)
        for label in host.split(separator: ".") { data += [UInt8(label.utf8.count)] + Array(label.utf8) }
        data.append(0)
        let head: [UInt8] = [0xC0, 12, 0, 33, 0, 1, 0, 0, 0, 60]
        return head + bytes(UInt16(data.count)) + data
    }

    private func look(_ answer: @escaping @Sendable (String) -> [UInt8]) throws -> Result<
        [ServiceTarget], TransportError
    > {
        let server = try NameServer(answer)
        ServiceLookup.setNameServer(port: server.port)
        defer { ServiceLookup.setNameServer(port: 0) }
        let test = try TestLoop()
        let result = Box<Result<[ServiceTarget], TransportError>?>(nil)
        let lookup = Box<ServiceLookup?>(nil)
        try test.sync {
            lookup.value = ServiceLookup.start(loop: test.loop, service: "blip", host: "example.test") {
                result.value = $0
            }
        }
        try test.wait("answer") { result.value != nil }
        return try #require(result.value)
    }

    @Test("Records come in the order of their priorities")
    func records() throws {
        let found = try look { name in
            guard name == "_blip._tcp.example.test" else { return [255] }
            return [3] + Self.record(20, 0, 4, "c.test") + Self.record(5, 1, 4984, "a.test")
                + Self.record(10, 0, 3, "b.test")
        }.get()
        #expect(found.map(\.host) == ["a.test", "b.test", "c.test"])
        #expect(found.map(\.port) == [4984, 3, 4])
    }

    @Test("Without records, or without a name, there are no servers, which is no error")
    func none() throws {
        #expect(try look { _ in [0] }.get().isEmpty)
        #expect(try look { _ in [255] }.get().isEmpty)
    }

    @Test("A target that is the root says that the service is not there")
    func refused() throws {
        let result = try look { _ in [1] + Self.record(0, 0, 0, "") }
        guard case .failure(let error) = result else {
            Issue.record("\(result)")
            return
        }
        #expect(error.kind == .resolve && error.text.contains("not offered"))
    }

    @Test("Malformed answers are no servers")
    func malformed() throws {
        for answer: [UInt8] in [
            [9, 1, 2, 3], [1, 0xC0, 12, 0, 33, 0, 1, 0, 0, 0, 60, 0xFF, 0xFF, 0, 0], [1, 0xC0, 0xFF],
            [1, 0xC0, 12, 0, 33, 0, 1, 0, 0, 0, 60, 0, 8, 0, 0, 0, 0, 0, 0, 0xC0, 30],
        ] {
            #expect(try look { _ in answer }.get().isEmpty)
        }
    }

    @Test("Within a priority the lot decides, by weight")
    func weights() {
        var first = [String: Int]()
        var generator = SystemRandomNumberGenerator()
        let targets = [("a", 90), ("b", 10), ("c", 0)].map {
            ServiceTarget(host: $0.0, port: 1, priority: 1, weight: UInt16($0.1))
        }
        for _ in 0..<2000 {
            let order = ServiceTarget.ordered(targets, using: &generator)
            #expect(order.count == 3)
            first[order[0].host, default: 0] += 1
        }
        #expect((1500...1950).contains(first["a"] ?? 0), "\(first)")
        #expect((50...400).contains(first["b"] ?? 0), "\(first)")
    }
}
