import CSystem
import Foundation
import Testing

@testable import Transport

/// TLS inside TLS, as through a proxy that speaks TLS itself.
@Suite struct NestedTLSTests {
    /// Two peers whose streams have a second TLS inside the first.
    private func nestedPeers(_ test: TestLoop) throws -> (Peer, Peer, Int32, Int32) {
        let sockets = try Kind.tcp4.sockets()
        let certificates = try Certificates.shared()
        let client = try TLSContext.client(caFile: certificates.ca)
        let server = try TLSContext.server(identity: certificates.good)
        let (a, b) = try test.sync { (Peer(test.loop, sockets.0), Peer(test.loop, sockets.1)) }
        for _ in 0..<2 {
            try test.sync {
                a.isSecured = false
                b.isSecured = false
                b.stream.startTLS(server, serverName: nil, isServer: true)
                a.stream.startTLS(client, serverName: "localhost", isServer: false)
                a.stream.startReading()
                b.stream.startReading()
            }
            try test.wait("handshakes") { a.isSecured && b.isSecured || a.ends + b.ends > 0 }
        }
        return (a, b, sockets.0, sockets.1)
    }

    @Test("Much goes both ways, however the system cuts it", arguments: [0, 29, 5000])
    func transfer(_ limit: Int) throws {
        let test = try TestLoop()
        let (a, b, one, other) = try nestedPeers(test)
        let hook = FaultHooks.add { call, descriptor in
            guard limit > 0, descriptor == one || descriptor == other, call == .send || call == .receive else {
                return .none
            }
            return .limit(limit)
        }
        defer { FaultHooks.remove(hook) }
        let count = limit == 0 ? 400_000 : min(limit * 1000, 400_000)
        try test.sync {
            a.keepsBytes = false
            b.keepsBytes = false
            a.generated = count
            b.generated = count
            a.stream.requestOutput()
            b.stream.requestOutput()
        }
        let expected = Pattern.checksum(count)
        try test.wait("bytes", seconds: 60) { (a.sha == expected && b.sha == expected) || a.ends + b.ends > 0 }
        #expect(try test.sync { a.end == nil && b.end == nil })
        // Nothing is kept while nothing goes on.
        try test.wait("rest") { !a.stream.ownsBuffers && !b.stream.ownsBuffers }
        try closeAll(test, a, b)
    }

    @Test("The end comes in order, and an end of the outer TLS alone is none of the inner's")
    func ends() throws {
        let test = try TestLoop()
        let (a, b, _, _) = try nestedPeers(test)
        try test.sync {
            a.send([1, 2, 3])
            a.stream.finishOutput()
        }
        try test.wait("end") { b.ends > 0 }
        #expect(try test.sync { b.received == [1, 2, 3] && b.end == nil })
        try closeAll(test, a, b)

        let (c, d, socket, _) = try nestedPeers(test)
        _ = shutdown(socket, Int32(SHUT_WR))
        try test.wait("end") { d.ends > 0 }
        #expect(try test.sync { d.end != nil })
        try closeAll(test, c, d)
    }

    @Test("A peer that does not read blocks nobody, and all arrives in the end")
    func slowReader() throws {
        let test = try TestLoop()
        let (a, b, _, _) = try nestedPeers(test)
        let count = 12_000_000
        try test.sync {
            b.keepsBytes = false
            b.stream.pauseReading()
            a.generated = count
            a.stream.requestOutput()
        }
        usleep(200_000)
        try test.sync {
            #expect(a.generated > 0)
            b.stream.resumeReading()
        }
        let expected = Pattern.checksum(count)
        try test.wait("bytes", seconds: 60) { b.sha == expected || a.ends + b.ends > 0 }
        #expect(try test.sync { a.end == nil && b.end == nil })
        try closeAll(test, a, b)
    }
}
