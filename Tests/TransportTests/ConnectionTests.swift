import CSystem
import Foundation
import Synchronization
import Testing

@testable import Transport

@Suite struct ConnectionTests {
    typealias Answer = Result<Int32, TransportError>

    private func connect(
        _ test: TestLoop, _ host: String, _ port: UInt16, timeout: Int64 = 10_000, delay: Int64 = 250
    ) throws -> Answer {
        let answer = Box<Answer?>(nil)
        var options = Connector.Options()
        options.timeout = timeout
        options.attemptDelay = delay
        let set = options
        try test.sync {
            _ = Connector.connect(loop: test.loop, host: host, port: port, options: set) {
                #expect(answer.value == nil)
                answer.value = $0
            }
            #expect(answer.value == nil)
        }
        try test.wait("answer") { answer.value != nil }
        return try #require(answer.value)
    }

    /// Accepts and keeps the sockets.
    final class Host: @unchecked Sendable {
        let acceptor: Acceptor
        var accepted = [(descriptor: Int32, peer: SocketAddress)]()
        var errors = [TransportError]()
        init(_ acceptor: Acceptor) {
            self.acceptor = acceptor
            acceptor.onAccept = { [unowned self] in accepted.append(($0, $1)) }
            acceptor.onError = { [unowned self] in errors.append($0) }
        }
        deinit { for one in accepted { close(one.descriptor) } }
    }

    private func host(_ test: TestLoop, _ acceptor: Acceptor) throws -> Host {
        try test.sync {
            let host = Host(acceptor)
            acceptor.start()
            return host
        }
    }

    @Test("A listener on any host accepts from both families; on localhost too", arguments: ["", "localhost"])
    func bothFamilies(_ name: String) throws {
        let test = try TestLoop()
        let host = try host(test, .bind(loop: test.loop, host: name, port: 0))
        #expect(host.acceptor.port != 0)
        for address in ["127.0.0.1", "::1"] {
            let descriptor = try connect(test, address, host.acceptor.port).get()
            #expect(SocketAddress.remote(of: descriptor).host == address)
            close(descriptor)
        }
        try test.wait("connections") { host.accepted.count == 2 }
        #expect(try test.sync { host.accepted.allSatisfy { $0.peer.port != 0 } })
        #expect(try test.sync { Set(host.accepted.map(\.peer.host)) } == ["127.0.0.1", "::1"])
        try test.sync { host.acceptor.close() }
    }

    @Test("An interface can be given by its name")
    func interface() throws {
        let test = try TestLoop()
        let acceptor = try Acceptor.bind(loop: test.loop, host: "lo", port: 0)
        #expect(acceptor.addresses.contains { $0.host == "127.0.0.1" })
        #expect {
            try Acceptor.bind(loop: test.loop, host: "no-such-interface", port: 0)
        } throws: {
            ($0 as? TransportError)?.kind == .unreachable
        }
    }

    @Test("A name with several addresses is connected by the first that answers")
    func localhost() throws {
        let test = try TestLoop()
        for listening in ["127.0.0.1", "::1"] {
            let host = try host(test, .bind(loop: test.loop, host: listening, port: 0))
            let name = Names.add { port in
                .success(["::1", "127.0.0.1"].compactMap { SocketAddress(literal: $0, port: port) })
            }
            let descriptor = try connect(test, name, host.acceptor.port).get()
            #expect(SocketAddress.remote(of: descriptor).host == listening)
            close(descriptor)
            try test.sync { host.acceptor.close() }
        }
        // The real name, by the system's resolver.
        let host = try host(test, .bind(loop: test.loop, host: "127.0.0.1", port: 0))
        close(try connect(test, "localhost", host.acceptor.port).get())
        try test.sync { host.acceptor.close() }
    }

    @Test("An address that does not answer delays the next by the attempt delay only")
    func happyEyeballs() throws {
        let test = try TestLoop()
        let silent = try SilentListener("127.0.0.1")
        let host = try host(test, .bind(loop: test.loop, host: "::1", port: silent.port))
        let name = Names.add { port in
            .success(["127.0.0.1", "::1"].compactMap { SocketAddress(literal: $0, port: port) })
        }
        let start = csystem_now()
        let descriptor = try connect(test, name, silent.port, delay: 100).get()
        let took = csystem_now() - start
        #expect(SocketAddress.remote(of: descriptor).host == "::1")
        #expect(took >= 90_000_000)
        close(descriptor)
        try test.sync { host.acceptor.close() }
    }

    @Test("Families take turns")
    func interleaving() {
        let order = ["::1", "::2", "::3", "10.0.0.1", "10.0.0.2"].compactMap { SocketAddress(literal: $0, port: 1) }
        #expect(
            Connector.interleaved(order).map(\.host) == ["::1", "10.0.0.1", "::2", "10.0.0.2", "::3"])
        #expect(Connector.interleaved([]).isEmpty)
    }

    @Test("A refusal names the address; several are told in one error")
    func refused() throws {
        let test = try TestLoop()
        let port = try freePort()
        guard case .failure(let error) = try connect(test, "127.0.0.1", port) else { throw TestFailure("connected") }
        #expect(error.kind == .refused && error.code == ECONNREFUSED)
        #expect(error.text == "connect to 127.0.0.1:\(port): Connection refused")
        let name = Names.add { port in
            .success(["::1", "127.0.0.1"].compactMap { SocketAddress(literal: $0, port: port) })
        }
        guard case .failure(let both) = try connect(test, name, port) else { throw TestFailure("connected") }
        #expect(both.text == "connect to \(name):\(port): Connection refused ([::1]:\(port), 127.0.0.1:\(port))")
    }

    @Test("An unreachable network is told at once")
    func unreachable() throws {
        let test = try TestLoop()
        let name = Names.add { port in .success([SocketAddress(literal: "192.0.2.1", port: port)].compactMap { $0 }) }
        let hook = FaultHooks.add { call, _ in
            guard call == .connect, csystem_current_loop() == Unmanaged.passUnretained(test.loop).toOpaque() else {
                return .none
            }
            return .error(ENETUNREACH)
        }
        defer { FaultHooks.remove(hook) }
        guard case .failure(let error) = try connect(test, name, 80) else { throw TestFailure("connected") }
        #expect(error.kind == .unreachable)
        #expect(error.text == "connect to \(name):80 (192.0.2.1:80): Network is unreachable")
    }

    @Test("Without descriptors there is an error, and names with control characters stay on one line")
    func clearErrors() throws {
        let test = try TestLoop()
        let hook = FaultHooks.add { call, _ in
            guard call == .socket, csystem_current_loop() == Unmanaged.passUnretained(test.loop).toOpaque() else {
                return .none
            }
            return .error(EMFILE)
        }
        defer { FaultHooks.remove(hook) }
        guard case .failure(let error) = try connect(test, "127.0.0.1", 9) else { throw TestFailure("connected") }
        #expect(error.kind == .resources && error.text == "connect to 127.0.0.1:9: Too many open files")
        let odd = TransportError(domain: .dns, kind: .resolve, code: 0, text: "look up a\nb\u{7f}: é")
        #expect(odd.text == "look up a?b?: é")
    }

    @Test("Silence ends with the timeout")
    func silence() throws {
        let test = try TestLoop()
        let silent = try SilentListener("127.0.0.1")
        let start = csystem_now()
        guard case .failure(let error) = try connect(test, "127.0.0.1", silent.port, timeout: 150) else {
            throw TestFailure("connected")
        }
        #expect(csystem_now() - start >= 150_000_000)
        #expect(error.kind == .timedOut && error.domain == .timeout)
        #expect(error.text == "connect to 127.0.0.1:\(silent.port): no answer within 150 ms")
    }

    @Test("A name that is not found gives an error of the resolver; silence of the resolver the timeout")
    func resolverFailures() throws {
        let test = try TestLoop()
        let failing = Names.add { _ in
            .failure(TransportError(domain: .dns, kind: .resolve, code: EAI_NONAME, text: "look up x: unknown"))
        }
        guard case .failure(let error) = try connect(test, failing, 1) else { throw TestFailure("connected") }
        #expect(error.kind == .resolve && error.domain == .dns)
        let slow = Names.add { _ in
            usleep(600_000)
            return nil
        }
        guard case .failure(let late) = try connect(test, slow, 1, timeout: 100) else { throw TestFailure("connected") }
        #expect(late.kind == .timedOut && late.text.contains("the name was not found within 100 ms"))
        for bad in ["", "a\0b", String(repeating: "x", count: 300)] {
            guard case .failure(let error) = try connect(test, bad, 1) else { throw TestFailure("connected") }
            #expect(error.kind == .resolve)
        }
    }

    @Test("The system's resolver says so when there is no such name")
    func realLookup() {
        guard case .failure(let error) = Resolver.lookUp("no such name", 1) else {
            Issue.record("found")
            return
        }
        #expect(error.kind == .resolve && error.text.hasPrefix("look up no such name: "))
        guard case .success(let addresses) = Resolver.lookUp("localhost", 80) else {
            Issue.record("localhost not found")
            return
        }
        #expect(addresses.allSatisfy { $0.isLoopback && $0.port == 80 })
    }

    @Test("More lookups than threads are all answered, cancelled ones never")
    func manyLookups() throws {
        let test = try TestLoop()
        let name = Names.add { port in
            usleep(2000)
            return .success([SocketAddress(literal: "127.0.0.1", port: port)].compactMap { $0 })
        }
        let answers = Box([UInt16]())
        try test.sync {
            for port in 1...60 {
                let lookup = Resolver.resolve(loop: test.loop, host: name, port: UInt16(port)) { result in
                    if case .success(let found) = result { answers.value += found.map(\.port) }
                }
                if port % 3 == 0 { lookup.cancel() }
            }
        }
        try test.wait("answers") { answers.value.count == 40 }
        usleep(20_000)
        #expect(try test.sync { Set(answers.value) == Set((1...60).filter { $0 % 3 != 0 }.map { UInt16($0) }) })
    }

    @Test("A cancelled connector never answers, whatever it waits for")
    func cancelling() throws {
        let test = try TestLoop()
        let silent = try SilentListener("127.0.0.1")
        let slow = Names.add { _ in
            usleep(50_000)
            return nil
        }
        let calls = Box(0)
        for host in ["127.0.0.1", slow] {
            let connector = Box<Connector?>(nil)
            try test.sync {
                connector.value = Connector.connect(loop: test.loop, host: host, port: silent.port) { _ in
                    calls.value += 1
                }
                if host == slow { connector.value?.cancel() }
            }
            usleep(20_000)
            weak let gone = connector.value
            try test.sync {
                connector.value?.cancel()
                connector.value?.cancel()
                connector.value = nil
            }
            usleep(100_000)
            try test.sync {}
            #expect(gone == nil)
        }
        #expect(calls.value == 0)
    }

    @Test("A connector that is under way when the loop stops says so")
    func stopWhileConnecting() throws {
        let silent = try SilentListener("127.0.0.1")
        let answer = Box<Answer?>(nil)
        do {
            let test = try TestLoop()
            try test.sync {
                _ = Connector.connect(loop: test.loop, host: "127.0.0.1", port: silent.port) { answer.value = $0 }
            }
            try test.sync {}
        }
        guard case .failure(let error)? = answer.value else { throw TestFailure("no failure") }
        #expect(error.domain == .closed)
    }

    @Test("When descriptors run out the acceptor waits, reports, and goes on")
    func exhaustion() throws {
        let test = try TestLoop()
        let host = try host(test, .bind(loop: test.loop, host: "127.0.0.1", port: 0))
        let faults = Atomic<Int>(0)
        let hook = FaultHooks.add { call, _ in
            guard call == .accept, csystem_current_loop() == Unmanaged.passUnretained(test.loop).toOpaque() else {
                return .none
            }
            return faults.add(1, ordering: .relaxed).newValue <= 2 ? .error(EMFILE) : .none
        }
        defer { FaultHooks.remove(hook) }
        let start = csystem_now()
        close(try connect(test, "127.0.0.1", host.acceptor.port).get())
        try test.wait("connection") { host.accepted.count == 1 }
        #expect(csystem_now() - start >= 190_000_000)
        let errors = try test.sync { host.errors }
        // What lasts is told once in a while.
        #expect(errors.count == 1 && errors.allSatisfy { $0.kind == .resources })
        #expect(errors.first?.text == "accept on 127.0.0.1:\(host.acceptor.port): Too many open files")
        try test.sync { host.acceptor.close() }
    }

    @Test("A paused acceptor leaves connections waiting; a closed one refuses")
    func pauseAndClose() throws {
        let test = try TestLoop()
        let host = try host(test, .bind(loop: test.loop, host: "127.0.0.1", port: 0))
        try test.sync { host.acceptor.pause() }
        close(try connect(test, "127.0.0.1", host.acceptor.port).get())
        usleep(20_000)
        #expect(try test.sync { host.accepted.count } == 0)
        try test.sync { host.acceptor.resume() }
        try test.wait("connection") { host.accepted.count == 1 }
        try test.sync {
            host.acceptor.onAccept = { descriptor, _ in
                close(descriptor)
                host.acceptor.close()
            }
        }
        close(try connect(test, "127.0.0.1", host.acceptor.port).get())
        try test.wait("close") { host.acceptor.onAccept == nil }
        #expect(throws: TransportError.self) { try connect(test, "127.0.0.1", host.acceptor.port).get() }
    }

    @Test("A port in use is refused with its address")
    func inUse() throws {
        let test = try TestLoop()
        let acceptor = try Acceptor.bind(loop: test.loop, host: "127.0.0.1", port: 0)
        #expect {
            try Acceptor.bind(loop: test.loop, host: "127.0.0.1", port: acceptor.port)
        } throws: {
            ($0 as? TransportError)?.kind == .addressInUse
                && ($0 as? TransportError)?.text.hasPrefix("listen on 127.0.0.1:\(acceptor.port): ") == true
        }
    }

    @Test("A listening descriptor is taken over; another is refused")
    func adoption() throws {
        let test = try TestLoop()
        let listener = csystem_socket(AF_INET)
        let address = try #require(SocketAddress(literal: "127.0.0.1", port: 0))
        #expect(Syscall.bind(listener, address) == 0)
        #expect(throws: TransportError.self) { try Acceptor.adopt(loop: test.loop, descriptor: listener) }
        #expect(throws: TransportError.self) { try Acceptor.adopt(loop: test.loop, descriptor: 0x7fff) }
        #expect(csystem_listen(listener, 4) == 0)
        let host = try host(test, .adopt(loop: test.loop, descriptor: listener))
        close(try connect(test, "127.0.0.1", host.acceptor.port).get())
        try test.wait("connection") { host.accepted.count == 1 }
        try test.sync { host.acceptor.close() }
    }

    // MARK: Unix-domain sockets

    private func connect(_ test: TestLoop, path: String, timeout: Int64 = 5000) throws -> Answer {
        let answer = Box<Answer?>(nil)
        var options = Connector.Options()
        options.timeout = timeout
        let set = options
        try test.sync {
            _ = Connector.connect(loop: test.loop, unixPath: path, options: set) { answer.value = $0 }
        }
        try test.wait("answer") { answer.value != nil }
        return try #require(answer.value)
    }

    @Test("A Unix-domain listener makes its file, and removes it if it is still its own")
    func unixFile() throws {
        let test = try TestLoop()
        let directory = try TemporaryDirectory()
        let path = directory.file("socket")
        let first = try host(test, .bind(loop: test.loop, unixPath: path))
        let descriptor = try connect(test, path: path).get()
        #expect(SocketAddress.remote(of: descriptor).description == "unix:\(path)")
        close(descriptor)
        try test.wait("connection") { first.accepted.count == 1 }
        #expect {
            try Acceptor.bind(loop: test.loop, unixPath: path)
        } throws: {
            ($0 as? TransportError)?.kind == .addressInUse
        }
        #expect(FileManager.default.fileExists(atPath: path))
        // Somebody put another socket there: it is not ours to remove.
        unlink(path)
        let second = try host(test, .bind(loop: test.loop, unixPath: path))
        try test.sync { first.acceptor.close() }
        #expect(FileManager.default.fileExists(atPath: path))
        close(try connect(test, path: path).get())
        try test.sync { second.acceptor.close() }
        #expect(!FileManager.default.fileExists(atPath: path))
    }

    @Test("A stale socket file is replaced, any other file is left alone")
    func staleFile() throws {
        let test = try TestLoop()
        let directory = try TemporaryDirectory()
        let path = directory.file("socket")
        let dead = csystem_socket(AF_UNIX)
        #expect(Syscall.bind(dead, SocketAddress(unixPath: path)) == 0)
        close(dead)
        guard case .failure(let refused) = try connect(test, path: path) else { throw TestFailure("connected") }
        #expect(refused.kind == .refused)
        let host = try host(test, .bind(loop: test.loop, unixPath: path))
        close(try connect(test, path: path).get())
        try test.sync { host.acceptor.close() }

        let file = directory.file("text")
        try "precious".write(toFile: file, atomically: true, encoding: .utf8)
        #expect(throws: TransportError.self) { try Acceptor.bind(loop: test.loop, unixPath: file) }
        let link = directory.file("link")
        symlink(file, link)
        #expect(throws: TransportError.self) { try Acceptor.bind(loop: test.loop, unixPath: link) }
        #expect(try String(contentsOfFile: file, encoding: .utf8) == "precious")
        #expect(FileManager.default.fileExists(atPath: link))
    }

    @Test("Paths that cannot be sockets are refused with their text")
    func badPaths() throws {
        let test = try TestLoop()
        for path in ["", "/" + String(repeating: "x", count: 200), "/no/such/directory/socket", "/a\0b"] {
            #expect(throws: TransportError.self) { try Acceptor.bind(loop: test.loop, unixPath: path) }
            guard case .failure(let error) = try connect(test, path: path) else { throw TestFailure("connected") }
            #expect(error.text.hasPrefix("connect to unix:"))
        }
    }

    @Test("A Unix-domain listener whose queue is full is asked again until the timeout")
    func unixBacklog() throws {
        let test = try TestLoop()
        let directory = try TemporaryDirectory()
        let path = directory.file("socket")
        let address = SocketAddress(unixPath: path)
        let listener = csystem_socket(AF_UNIX)
        defer { close(listener) }
        #expect(Syscall.bind(listener, address) == 0 && csystem_listen(listener, 0) == 0)
        let first = csystem_socket(AF_UNIX)
        defer { close(first) }
        #expect(Syscall.connect(first, address) == 0)
        guard case .failure(let error) = try connect(test, path: path, timeout: 100) else {
            throw TestFailure("connected")
        }
        #expect(error.kind == .timedOut)
        let accepting = Thread {
            usleep(50_000)
            close(accept(listener, nil, nil))
        }
        accepting.start()
        close(try connect(test, path: path).get())
    }

    @Test("Addresses are read and written as people write them")
    func addressTexts() {
        for (literal, text) in [
            ("127.0.0.1", "127.0.0.1:80"), ("::1", "[::1]:80"), ("2001:DB8::0:1", "[2001:db8::1]:80"),
            ("fe80::1%1", "[fe80::1%1]:80"), ("::ffff:127.0.0.1", "[::ffff:127.0.0.1]:80"),
        ] {
            let address = SocketAddress(literal: literal, port: 80)
            #expect(address?.description == text)
            #expect(address?.port == 80)
        }
        for bad in [
            "", "localhost", "1.2.3", "1.2.3.4.5", "[::1]", ":::", "fe80::1%nowhere", "127.1", "0x7f.0.0.1", "1.2.3.4 ",
        ] {
            #expect(SocketAddress(literal: bad, port: 1) == nil, "\(bad)")
        }
        #expect(SocketAddress(literal: "127.9.9.9", port: 0)?.isLoopback == true)
        #expect(SocketAddress(literal: "128.0.0.1", port: 0)?.isLoopback == false)
        #expect(SocketAddress(literal: "::ffff:127.0.0.1", port: 0)?.isLoopback == true)
        #expect(SocketAddress(unixPath: "/x").description == "unix:/x")
    }
}

/// A listener that never accepts and whose queue is full: those who connect hear nothing.
final class SilentListener: Sendable {
    let port: UInt16
    private let descriptors: [Int32]

    init(_ host: String) throws {
        let address = try #require(SocketAddress(literal: host, port: 0))
        let listener = csystem_socket(address.systemFamily)
        guard Syscall.bind(listener, address) == 0, csystem_listen(listener, 0) == 0 else {
            throw TestFailure("listen")
        }
        let bound = SocketAddress.local(of: listener)
        port = bound.port
        var all = [listener]
        for _ in 0..<4 {
            let filler = csystem_socket(address.systemFamily)
            _ = Syscall.connect(filler, bound)
            all.append(filler)
        }
        usleep(20_000)
        descriptors = all
    }

    deinit { for descriptor in descriptors { close(descriptor) } }
}

/// A port that nobody listens on.
func freePort() throws -> UInt16 {
    let address = try #require(SocketAddress(literal: "127.0.0.1", port: 0))
    let descriptor = csystem_socket(AF_INET)
    defer { close(descriptor) }
    guard Syscall.bind(descriptor, address) == 0 else { throw TestFailure("bind") }
    return SocketAddress.local(of: descriptor).port
}

/// Names that the tests answer themselves; a test's names are its own.
enum Names {
    typealias Answer = @Sendable (UInt16) -> Result<[SocketAddress], TransportError>?
    private static let names = Locked<[String: Answer]>([:])

    static func add(_ answer: @escaping Answer) -> String {
        let name = names.withLock {
            let name = "name-\($0.count).test"
            $0[name] = answer
            return name
        }
        Resolver.setOverride { name, port in names.withLock { $0[name] }?(port) }
        return name
    }
}
