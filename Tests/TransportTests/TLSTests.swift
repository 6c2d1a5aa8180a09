import CSystem
import Foundation
import Testing

@testable import Transport

@Suite struct TLSTests {
    /// The outcome of a handshake, seen from both sides; each side sends and waits for one byte.
    struct Outcome {
        var client: TransportError?
        var server: TransportError?
        var isGood: Bool
        var version: String?
        var cipher: String?
        var serverCertificate: [UInt8]?
        var clientCertificate: [UInt8]?
        var isResumed = false
    }

    private func attempt(
        _ test: TestLoop, client: TLSContext, server: TLSContext, name: String? = "localhost"
    ) throws -> Outcome {
        let sockets = try Kind.tcp4.sockets()
        let (a, b) = try test.sync { (Peer(test.loop, sockets.0), Peer(test.loop, sockets.1)) }
        try test.sync {
            b.stream.startTLS(server, serverName: nil, isServer: true)
            a.stream.startTLS(client, serverName: name, isServer: false)
            a.stream.startReading()
            b.stream.startReading()
            a.send([1])
            b.send([2])
        }
        try test.wait("outcome") { (a.received == [2] && b.received == [1]) || (a.ends > 0 && b.ends > 0) }
        let outcome = try test.sync {
            Outcome(
                client: a.end, server: b.end, isGood: a.ends == 0 && b.ends == 0, version: a.stream.tlsVersion,
                cipher: a.stream.tlsCipher, serverCertificate: a.stream.peerCertificateDER,
                clientCertificate: b.stream.peerCertificateDER, isResumed: a.stream.isResumed)
        }
        for error in [outcome.client, outcome.server].compactMap({ $0 }) {
            #expect(!error.text.contains("\n") && !error.text.isEmpty)
        }
        try closeAll(test, a, b)
        return outcome
    }

    @Test("A certificate of the trusted authority for the right name is accepted", arguments: [TLSVersion.v12, .v13])
    func good(_ version: TLSVersion) throws {
        let test = try TestLoop()
        let files = try Certificates.shared()
        let outcome = try attempt(
            test, client: .client(caFile: files.ca, maximum: version), server: .server(identity: files.good))
        #expect(outcome.isGood)
        #expect(outcome.version == (version == .v12 ? "TLSv1.2" : "TLSv1.3"))
        #expect(outcome.cipher?.contains("AES") == true || outcome.cipher?.contains("CHACHA") == true)
        #expect((outcome.serverCertificate?.count ?? 0) > 200)
        #expect(outcome.clientCertificate == nil)
    }

    @Test(
        "Names match by the certificate's alternative names alone",
        arguments: [
            ("localhost", true), ("LOCALHOST", true), ("localhost.", true), ("www.example.test", true),
            ("example.test", false), ("a.b.example.test", false), ("127.0.0.1", false), ("other", false),
        ])
    func names(_ name: String, _ expected: Bool) throws {
        let test = try TestLoop()
        let files = try Certificates.shared()
        let outcome = try attempt(
            test, client: .client(caFile: files.ca), server: .server(identity: files.good), name: name)
        #expect(outcome.isGood == expected)
        if !expected {
            #expect(outcome.client?.kind == .certificate)
            #expect(outcome.client?.text.hasPrefix("certificate of \(name): ") == true)
        }
    }

    @Test(
        "Addresses match the certificate's addresses",
        arguments: [
            ("127.0.0.1", true), ("::1", true), ("127.0.0.2", false), ("localhost", false),
        ])
    func addresses(_ name: String, _ expected: Bool) throws {
        let test = try TestLoop()
        let files = try Certificates.shared()
        let outcome = try attempt(
            test, client: .client(caFile: files.ca), server: .server(identity: files.address), name: name)
        #expect(outcome.isGood == expected)
    }

    @Test("Bad certificates are refused with a clear text, by the client, before a byte is sent")
    func refused() throws {
        let test = try TestLoop()
        let files = try Certificates.shared()
        let client = try TLSContext.client(caFile: files.ca)
        for (identity, words) in [
            (files.wrongName, "hostname mismatch"), (files.expired, "certificate has expired"),
            (files.selfSigned, "self-signed certificate"), (files.commonNameOnly, "hostname mismatch"),
        ] {
            let outcome = try attempt(test, client: client, server: .server(identity: identity))
            #expect(!outcome.isGood)
            let error = try #require(outcome.client)
            #expect(error.kind == .certificate && error.domain == .tls)
            #expect(error.text.lowercased().contains(words), "\(error.text)")
            #expect(error.text.hasPrefix("certificate of localhost: "))
            #expect(outcome.server?.kind == .tls)
            #expect(outcome.server?.text.contains("the peer refused") == true)
        }
    }

    @Test("The CA file alone decides; the system's store does not know our authority")
    func trust() throws {
        let test = try TestLoop()
        let files = try Certificates.shared()
        let server = try TLSContext.server(identity: files.good)
        #expect(try !attempt(test, client: .client(caFile: files.otherCA), server: server).isGood)
        let system = try attempt(test, client: .client(), server: server)
        #expect(!system.isGood && system.client?.kind == .certificate)
        let own = try TLSContext.server(identity: files.selfSigned)
        #expect(try attempt(test, client: .client(caFile: files.selfSigned.certificateFile), server: own).isGood)
        #expect(try attempt(test, client: .client(verify: false), server: own, name: nil).isGood)
        #expect(try attempt(test, client: .client(verify: false), server: own, name: "anything").isGood)
    }

    @Test("Verifying without a name to verify is refused")
    func noName() throws {
        let test = try TestLoop()
        let files = try Certificates.shared()
        let outcome = try attempt(
            test, client: .client(caFile: files.ca), server: .server(identity: files.good), name: nil)
        #expect(outcome.client?.kind == .tlsSetup)
    }

    @Test("A client certificate is demanded, checked and shown", arguments: [TLSVersion.v12, .v13])
    func clientCertificates(_ version: TLSVersion) throws {
        let test = try TestLoop()
        let files = try Certificates.shared()
        let required = try TLSContext.server(
            identity: files.good, clientCAFile: files.ca, clientCertificateRequired: true, maximum: version)
        let optional = try TLSContext.server(identity: files.good, clientCAFile: files.ca, maximum: version)
        let with = try TLSContext.client(caFile: files.ca, identity: files.client)
        let without = try TLSContext.client(caFile: files.ca)
        let wrong = try TLSContext.client(caFile: files.ca, identity: files.selfSigned)

        let good = try attempt(test, client: with, server: required)
        #expect(good.isGood && (good.clientCertificate?.count ?? 0) > 200)
        let missing = try attempt(test, client: without, server: required)
        #expect(!missing.isGood && missing.server?.text.contains("did not return a certificate") == true)
        #expect(missing.client?.text.contains("the peer refused") == true, "\(missing)")
        #expect(try attempt(test, client: without, server: optional).isGood)
        let bad = try attempt(test, client: wrong, server: optional)
        #expect(!bad.isGood && bad.server?.kind == .certificate)
    }

    @Test("Versions that do not meet fail on both sides")
    func versions() throws {
        let test = try TestLoop()
        let files = try Certificates.shared()
        let outcome = try attempt(
            test, client: .client(caFile: files.ca, maximum: .v12), server: .server(identity: files.good, minimum: .v13)
        )
        #expect(!outcome.isGood && outcome.client?.kind == .tls && outcome.server?.kind == .tls)
        #expect(throws: TransportError.self) { try TLSContext.client(minimum: .v13, maximum: .v12) }
    }

    @Test("The second connection resumes the first one's session", arguments: [TLSVersion.v12, .v13], [false, true])
    func resumption(_ version: TLSVersion, _ withClientCertificate: Bool) throws {
        let test = try TestLoop()
        let files = try Certificates.shared()
        let client = try TLSContext.client(
            caFile: files.ca, identity: withClientCertificate ? files.client : nil, maximum: version)
        let server = try TLSContext.server(
            identity: files.good, clientCAFile: withClientCertificate ? files.ca : nil,
            clientCertificateRequired: withClientCertificate)
        #expect(try !attempt(test, client: client, server: server).isResumed)
        for _ in 0..<3 {
            let again = try attempt(test, client: client, server: server)
            #expect(again.isGood && again.isResumed)
            #expect((again.clientCertificate != nil) == withClientCertificate)
        }
        // Another name is another session.
        #expect(try !attempt(test, client: client, server: server, name: "www.example.test").isResumed)
    }

    @Test("Files that cannot be used are named, with the reason")
    func setup() throws {
        let files = try Certificates.shared()
        func text(_ body: () throws -> TLSContext) -> String {
            do {
                _ = try body()
                return "no error"
            } catch let error as TransportError {
                #expect(error.kind == .tlsSetup && !error.text.contains("\n"))
                return error.text
            } catch {
                return "another error"
            }
        }
        let garbage = files.directory.file("garbage.pem")
        try "hello\n".write(toFile: garbage, atomically: true, encoding: .utf8)
        let missing = files.directory.file("missing.pem")
        #expect(text { try .client(caFile: missing) } == "CA file \(missing): No such file or directory")
        #expect(text { try .client(caFile: garbage) }.hasPrefix("CA file \(garbage): "))
        let identity = { TLSIdentity(certificateFile: $0, keyFile: $1) }
        let good = files.good
        #expect(
            text { try .server(identity: identity(missing, good.keyFile)) }
                == "certificate file \(missing): No such file or directory")
        #expect(
            text { try .server(identity: identity(garbage, good.keyFile)) }
                == "certificate file \(garbage): it holds no PEM text of that kind")
        #expect(
            text { try .server(identity: identity(good.certificateFile, missing)) }
                == "key file \(missing): No such file or directory")
        #expect(
            text { try .server(identity: identity(good.certificateFile, files.client.keyFile)) }
                == "key file \(files.client.keyFile): the key is not that of the certificate")
        #expect(
            text { try .server(identity: identity(good.certificateFile, files.encryptedKey)) }
                == "key file \(files.encryptedKey): the key is encrypted; a key without a password is needed")
        #expect(text { try .server(identity: good, clientCAFile: missing) }.hasPrefix("CA file \(missing)"))
        #expect(text { try .server(identity: good, clientCertificateRequired: true) }.contains("required"))
        #expect(text { try .client(caFile: "") }.contains("empty"))
    }

    @Test("Bytes that came in one record are given again although the socket stays silent")
    func leftInside() throws {
        let test = try TestLoop()
        let (a, b) = try connectedPeers(test, .tls)
        let size = 1 << 20
        let sum = Box(Checksum())
        try test.sync {
            // Takes at most 1000 bytes a call, pausing after each.
            b.consume = { stream, bytes in
                let count = min(bytes.count, 1000)
                sum.value.add(UnsafeRawBufferPointer(rebasing: bytes[0..<count]))
                stream.pauseReading()
                test.loop.post { stream.resumeReading() }
                return count
            }
            b.stream.startReading()
            a.generated = size
            a.stream.requestOutput()
        }
        try test.wait("bytes", seconds: 60) { sum.value.count == size }
        #expect(try test.sync { sum.value == Pattern.checksum(size) })
        try closeAll(test, a, b)
    }

    @Test("Application data in the same segment as the end of the handshake is delivered")
    func coalesced() throws {
        // The client's last flight and its first data leave in one turn; the server starts reading later.
        let test = try TestLoop()
        let files = try Certificates.shared()
        let sockets = try Kind.unix.sockets()
        let (a, b) = try test.sync { (Peer(test.loop, sockets.0), Peer(test.loop, sockets.1)) }
        let client = try TLSContext.client(caFile: files.ca)
        let server = try TLSContext.server(identity: files.good)
        try test.sync {
            b.stream.startTLS(server, serverName: nil, isServer: true)
            a.stream.startTLS(client, serverName: "localhost", isServer: false)
            a.send(Array("hello".utf8))
        }
        try test.wait("handshake") { a.isSecured && b.isSecured }
        usleep(20_000)
        #expect(try test.sync { b.calls } == 0)
        try test.sync { b.stream.startReading() }
        try test.wait("bytes") { b.received == Array("hello".utf8) }
        try closeAll(test, a, b)
    }

    @Test("Bytes received before TLS began belong to the handshake")
    func startedLate() throws {
        let test = try TestLoop()
        let files = try Certificates.shared()
        let sockets = try Kind.unix.sockets()
        let (a, b) = try test.sync { (Peer(test.loop, sockets.0), Peer(test.loop, sockets.1)) }
        let client = try TLSContext.client(caFile: files.ca)
        let server = try TLSContext.server(identity: files.good)
        try test.sync {
            b.consume = { stream, bytes in
                stream.startTLS(server, serverName: nil, isServer: true)
                b.consume = nil
                return 0
            }
            b.stream.startReading()
            a.stream.startTLS(client, serverName: "localhost", isServer: false)
            a.stream.startReading()
            a.send([1, 2, 3])
        }
        try test.wait("bytes") { b.received == [1, 2, 3] }
        try closeAll(test, a, b)
    }

    @Test("An end without close_notify is told from an orderly one, in the handshake too")
    func truncated() throws {
        let test = try TestLoop()
        let (a, b) = try connectedPeers(test, .tls)
        try test.sync {
            a.stream.startReading()
            shutdown(b.stream.descriptor, Int32(SHUT_RDWR))
        }
        try test.wait("end") { a.ends == 1 }
        #expect(try test.sync { a.end?.kind } == .ended)
        try closeAll(test, a, b)

        let sockets = try Kind.tcp4.sockets()
        let files = try Certificates.shared()
        let client = try TLSContext.client(caFile: files.ca)
        let peer = try test.sync { Peer(test.loop, sockets.0) }
        try test.sync { peer.stream.startTLS(client, serverName: "localhost", isServer: false) }
        shutdown(sockets.1, Int32(SHUT_WR))
        try test.wait("end") { peer.ends == 1 }
        #expect(try test.sync { peer.end?.kind } == .ended)
        close(sockets.1)
        try closeAll(test, peer)
    }

    @Test("A peer that speaks no TLS gives an error of TLS", arguments: [false, true])
    func notTLS(_ isServer: Bool) throws {
        let test = try TestLoop()
        let files = try Certificates.shared()
        let context: TLSContext = try isServer ? .server(identity: files.good) : .client(caFile: files.ca)
        let sockets = try Kind.tcp4.sockets()
        let text = Array("GET / HTTP/1.1\r\nHost: localhost\r\n\r\n".utf8)
        #expect(csystem_send(sockets.1, text, text.count) == text.count)
        let peer = try test.sync { Peer(test.loop, sockets.0) }
        try test.sync { peer.stream.startTLS(context, serverName: "localhost", isServer: isServer) }
        try test.wait("end") { peer.ends == 1 }
        #expect(try test.sync { peer.end?.kind } == .tls)
        close(sockets.1)
        try closeAll(test, peer)
    }

    @Test("A damaged record ends the stream with an error")
    func damaged() throws {
        let test = try TestLoop()
        let (a, b) = try connectedPeers(test, .tls)
        try test.sync {
            b.stream.startReading()
            let record: [UInt8] = [23, 3, 3, 0, 40] + [UInt8](repeating: 9, count: 40)
            _ = csystem_send(a.stream.descriptor, record, record.count)
        }
        try test.wait("end") { b.ends == 1 }
        #expect(try test.sync { b.end?.kind } == .tls)
        try closeAll(test, a, b)
    }

    @Test("A context of the other side is refused")
    func wrongSide() throws {
        let test = try TestLoop()
        let sockets = try Kind.tcp4.sockets()
        let context = try TLSContext.client()
        let peer = try test.sync { Peer(test.loop, sockets.0) }
        try test.sync {
            peer.stream.startTLS(context, serverName: nil, isServer: true)
            peer.send([1])
        }
        try test.wait("end") { peer.ends == 1 }
        #expect(try test.sync { peer.end?.kind == .tlsSetup && peer.stream.bytesSent == 0 })
        close(sockets.1)
        try closeAll(test, peer)
    }
}

@Suite struct TLSInteroperationTests {
    /// Runs a TLS client that is not ours. Its input comes line by line: it takes a lone "R" or "K" as a command.
    private func run(_ arguments: [String], input: [String], port: UInt16) throws -> String {
        let process = Process()
        process.executableURL = URL(fileURLWithPath: "/usr/bin/openssl")
        process.arguments = ["s_client", "-connect", "127.0.0.1:\(port)", "-servername", "localhost"] + arguments
        let (stdin, stdout) = (Pipe(), Pipe())
        process.standardInput = stdin
        process.standardOutput = stdout
        process.standardError = FileHandle.nullDevice
        try process.run()
        let watchdog = Thread {
            for _ in 0..<100 where process.isRunning { usleep(100_000) }
            if process.isRunning { process.terminate() }
        }
        watchdog.start()
        for line in input {
            usleep(300_000)
            if process.isRunning { try? stdin.fileHandleForWriting.write(contentsOf: Data(line.utf8)) }
        }
        let output = stdout.fileHandleForReading.readDataToEndOfFile()
        process.waitUntilExit()
        return String(decoding: output, as: UTF8.self)
    }

    private func serve(_ arguments: [String], input: [String]) throws -> (output: String, received: String) {
        let test = try TestLoop()
        let files = try Certificates.shared()
        let context = try TLSContext.server(identity: files.good)
        let acceptor = try Acceptor.bind(loop: test.loop, host: "127.0.0.1", port: 0)
        let peer = Box<Peer?>(nil)
        try test.sync {
            acceptor.onAccept = { descriptor, _ in
                let new = Peer(test.loop, descriptor)
                peer.value = new
                new.stream.startTLS(context, serverName: nil, isServer: true)
                new.consume = { stream, bytes in
                    new.received += bytes
                    if new.received.last == UInt8(ascii: "\n") {
                        new.send(Array("answer\n".utf8))
                        stream.finishOutput()
                    }
                    return bytes.count
                }
                new.stream.startReading()
            }
            acceptor.start()
        }
        let output = try run(arguments, input: input, port: acceptor.port)
        let received = try test.sync { String(decoding: peer.value?.received ?? [], as: UTF8.self) }
        try test.sync {
            acceptor.close()
            peer.value?.stream?.close()
            peer.value?.drop()
        }
        return (output, received)
    }

    @Test("The openssl client is served and answered", arguments: ["-tls1_2", "-tls1_3"])
    func served(_ version: String) throws {
        let files = try Certificates.shared()
        let (output, received) = try serve([version, "-CAfile", files.ca], input: ["hello\n"])
        #expect(received == "hello\n")
        #expect(output.contains("answer") && output.contains("Verify return code: 0"))
    }

    @Test("Older versions are refused")
    func old() throws {
        let (output, received) = try serve(["-tls1_1", "-cipher", "ALL:@SECLEVEL=0"], input: [])
        #expect(received == "" && output.contains("Cipher is (NONE)"))
    }

    @Test("Renegotiation is refused")
    func renegotiation() throws {
        let (output, received) = try serve(["-tls1_2"], input: ["R\n", "hello\n"])
        #expect(received == "" && !output.contains("answer"))
    }

    @Test("Key updates are followed")
    func keyUpdate() throws {
        let (output, received) = try serve(["-tls1_3"], input: ["K\n", "hello\n"])
        #expect(received == "hello\n" && output.contains("answer"))
    }
}
