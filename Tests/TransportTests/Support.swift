import CSystem
import Foundation
import Synchronization
import Testing

@testable import Transport

typealias Stream = Transport.Stream
typealias StreamDelegate = Transport.StreamDelegate

/// A loop on a thread of its own for the length of a test.
final class TestLoop: Sendable {
    let loop: EventLoop

    init() throws {
        loop = try EventLoop()
        try loop.startThread(name: "test-loop")
    }

    deinit {
        loop.stop()
        loop.join()
    }

    /// Runs the closure on the loop and waits for its result.
    func sync<T>(_ body: @escaping () throws -> T) throws -> T {
        let box = Box(body)
        let done = DispatchSemaphore(value: 0)
        let result = Box<Result<T, any Error>?>(nil)
        #expect(
            loop.post {
                result.value = Result { try box.value() }
                done.signal()
            })
        guard done.wait(timeout: .now() + 20) == .success, let value = result.value else {
            throw TestFailure("loop hangs")
        }
        return try value.get()
    }

    /// Waits until the condition, asked on the loop, holds.
    func wait(
        _ what: String, seconds: Double = 20, location: SourceLocation = #_sourceLocation,
        until condition: @escaping () -> Bool
    ) throws {
        let end = Date().addingTimeInterval(seconds)
        while try !sync(condition) {
            if Date() > end {
                Issue.record("no \(what) within \(seconds) s", sourceLocation: location)
                throw TestFailure(what)
            }
            usleep(1000)
        }
    }
}

struct TestFailure: Error {
    let text: String
    init(_ text: String) { self.text = text }
}

/// A value handed between threads that take turns.
final class Box<T>: @unchecked Sendable {
    var value: T
    init(_ value: T) { self.value = value }
}

/// A stream's owner that collects what comes and sends what it is given.
final class Peer: StreamDelegate, @unchecked Sendable {
    private(set) var stream: Stream!
    var received = [UInt8]()
    var output = [UInt8]()
    private var outputStart = 0
    var isSecured = false
    var flushes = 0
    var ends = 0
    var end: TransportError?
    var calls = 0
    var sha = Checksum()
    var keepsBytes = true
    /// Bytes still to be made up and sent.
    var generated = 0
    private var generator = Pattern()
    var consume: ((Stream, UnsafeMutableRawBufferPointer) -> Int)?
    var onSecure: ((Stream) -> Void)?
    var onFlush: ((Stream) -> Void)?
    var onFill: ((Stream) -> Void)?
    var onEnd: ((Stream) -> Void)?
    /// Whether it goes on when the peer has ended its direction, and what was left unconsumed then.
    var outlivesInput = false
    var inputEnds = [Int]()

    init(_ loop: EventLoop, _ descriptor: Int32) {
        stream = Stream(loop: loop, descriptor: descriptor, delegate: self)
    }

    func send(_ bytes: [UInt8]) {
        output += bytes
        stream.requestOutput()
    }

    /// Lets go of the stream, and of closures that hold this object.
    func drop() {
        stream = nil
        consume = nil
        onSecure = nil
        onFlush = nil
        onFill = nil
        onEnd = nil
    }

    func stream(_ s: Stream, didReceive bytes: UnsafeMutableRawBufferPointer) -> Int {
        calls += 1
        if let consume { return consume(s, bytes) }
        sha.add(UnsafeRawBufferPointer(bytes))
        if keepsBytes { received += bytes }
        return bytes.count
    }

    func stream(_ s: Stream, fill buffer: UnsafeMutableRawBufferPointer) -> Int {
        onFill?(s)
        if generated > 0 {
            let count = min(generated, buffer.count)
            generator.write(UnsafeMutableRawBufferPointer(rebasing: buffer[0..<count]))
            generated -= count
            return count
        }
        let count = min(output.count - outputStart, buffer.count)
        output.withUnsafeBytes {
            buffer.copyMemory(from: UnsafeRawBufferPointer(rebasing: $0[outputStart..<outputStart + count]))
        }
        outputStart += count
        if outputStart == output.count {
            output = []
            outputStart = 0
        }
        return count
    }

    func stream(_ s: Stream, inputDidEndLeaving rest: Int) -> Bool {
        inputEnds.append(rest)
        return outlivesInput
    }

    func streamDidSecure(_ s: Stream) {
        isSecured = true
        onSecure?(s)
    }

    func streamDidFlush(_ s: Stream) {
        flushes += 1
        onFlush?(s)
    }

    func stream(_ s: Stream, didEnd error: TransportError?) {
        ends += 1
        end = error
        onEnd?(s)
    }
}

/// A running sum that notices lost, doubled and swapped bytes.
struct Checksum: Equatable {
    var count = 0
    private var a: UInt64 = 1
    private var b: UInt64 = 0
    mutating func add(_ bytes: UnsafeRawBufferPointer) {
        count += bytes.count
        for byte in bytes {
            a &+= UInt64(byte)
            b = (b &* 31) &+ a
        }
    }
}

/// A reproducible sequence of bytes.
struct Pattern {
    private var state: UInt64 = 0x9E37_79B9
    mutating func write(_ buffer: UnsafeMutableRawBufferPointer) {
        for index in buffer.indices {
            state = state &* 6_364_136_223_846_793_005 &+ 1_442_695_040_888_963_407
            buffer[index] = UInt8(truncatingIfNeeded: state >> 56)
        }
    }

    static func checksum(_ count: Int) -> Checksum {
        var pattern = Pattern()
        var sum = Checksum()
        let buffer = UnsafeMutableRawBufferPointer.allocate(byteCount: 1 << 16, alignment: 16)
        defer { buffer.deallocate() }
        var left = count
        while left > 0 {
            let part = UnsafeMutableRawBufferPointer(rebasing: buffer[0..<min(left, buffer.count)])
            pattern.write(part)
            sum.add(UnsafeRawBufferPointer(part))
            left -= part.count
        }
        return sum
    }
}

enum Kind: String, CaseIterable, Sendable, CustomTestStringConvertible {
    case tcp4, tcp6, unix, tls, tlsOverUnix

    var testDescription: String { rawValue }
    var isTLS: Bool { self == .tls || self == .tlsOverUnix }

    /// A connected pair of sockets.
    func sockets() throws -> (Int32, Int32) {
        switch self {
        case .unix, .tlsOverUnix:
            var pair: [Int32] = [0, 0]
            guard socketpair(AF_UNIX, Int32(SOCK_STREAM.rawValue), 0, &pair) == 0 else {
                throw TestFailure("socketpair")
            }
            return (pair[0], pair[1])
        case .tcp4, .tls: return try tcpPair("127.0.0.1")
        case .tcp6: return try tcpPair("::1")
        }
    }
}

func tcpPair(_ host: String) throws -> (Int32, Int32) {
    let address = try #require(SocketAddress(literal: host, port: 0))
    let listener = csystem_socket(address.systemFamily)
    defer { _ = csystem_close(listener) }
    guard Syscall.bind(listener, address) == 0, csystem_listen(listener, 16) == 0 else { throw TestFailure("listen") }
    let client = csystem_socket(address.systemFamily)
    let result = Syscall.connect(client, .local(of: listener))
    guard result == 0 || result == -EINPROGRESS else { throw TestFailure("connect \(result)") }
    var raw = sockaddr_storage()
    var length: socklen_t = 0
    for _ in 0..<2000 {
        let server = csystem_accept(listener, &raw, &length)
        if server >= 0 { return (client, server) }
        usleep(1000)
    }
    throw TestFailure("accept")
}

/// Two peers, connected and, if the kind says so, secured.
func connectedPeers(_ loops: (TestLoop, TestLoop), _ kind: Kind) throws -> (Peer, Peer) {
    let sockets = try kind.sockets()
    let client = try loops.0.sync { Peer(loops.0.loop, sockets.0) }
    let server = try loops.1.sync { Peer(loops.1.loop, sockets.1) }
    if kind.isTLS {
        let certificates = try Certificates.shared()
        let clientContext = try TLSContext.client(caFile: certificates.ca)
        let serverContext = try TLSContext.server(identity: certificates.good)
        try loops.1.sync { server.stream.startTLS(serverContext, serverName: nil, isServer: true) }
        try loops.0.sync { client.stream.startTLS(clientContext, serverName: "localhost", isServer: false) }
        try loops.0.wait("client handshake") { client.isSecured }
        try loops.1.wait("server handshake") { server.isSecured }
    }
    return (client, server)
}

func connectedPeers(_ loop: TestLoop, _ kind: Kind) throws -> (Peer, Peer) {
    try connectedPeers((loop, loop), kind)
}

func closeAll(_ loop: TestLoop, _ peers: Peer...) throws {
    try loop.sync {
        for peer in peers {
            peer.stream?.close()
            peer.drop()
        }
    }
}

/// A directory that goes with the test.
final class TemporaryDirectory: Sendable {
    let path: String
    init() throws {
        var template = Array("\(FileManager.default.temporaryDirectory.path)/transport-XXXXXX".utf8CString)
        guard mkdtemp(&template) != nil else { throw TestFailure("mkdtemp") }
        path = template.withUnsafeBufferPointer { String(cString: $0.baseAddress!) }
    }
    deinit { try? FileManager.default.removeItem(atPath: path) }
    func file(_ name: String) -> String { "\(path)/\(name)" }
}

/// Certificates made with the openssl command, once for all tests.
final class Certificates: Sendable {
    let directory: TemporaryDirectory
    let ca: String
    let otherCA: String
    let good: TLSIdentity
    let wrongName: TLSIdentity
    let address: TLSIdentity
    let expired: TLSIdentity
    let selfSigned: TLSIdentity
    let client: TLSIdentity
    let commonNameOnly: TLSIdentity
    let encryptedKey: String

    private static let made = Locked<Certificates?>(nil)

    static func shared() throws -> Certificates {
        try made.withLock {
            if let made = $0 { return made }
            let new = try Certificates()
            $0 = new
            return new
        }
    }

    private init() throws {
        let directory = try TemporaryDirectory()
        self.directory = directory
        func authority(_ name: String) throws -> String {
            try openssl(
                "req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -days 30 -subj /CN=\(name) "
                    + "-keyout \(directory.file(name)).key -out \(directory.file(name)).pem")
            return directory.file("\(name).pem")
        }
        func issue(_ name: String, _ extensions: String, days: Int = 30) throws -> TLSIdentity {
            let base = directory.file(name)
            try (extensions + "\n").write(toFile: base + ".ext", atomically: true, encoding: .utf8)
            try openssl(
                "req -new -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -subj /CN=localhost "
                    + "-keyout \(base).key -out \(base).csr")
            try openssl(
                "x509 -req -in \(base).csr -CA \(directory.file("ca")).pem -CAkey \(directory.file("ca")).key "
                    + "-CAcreateserial -days \(days) -extfile \(base).ext -out \(base).pem")
            return TLSIdentity(certificateFile: base + ".pem", keyFile: base + ".key")
        }
        ca = try authority("ca")
        otherCA = try authority("other")
        good = try issue("good", "subjectAltName=DNS:localhost,DNS:*.example.test")
        wrongName = try issue("wrong", "subjectAltName=DNS:elsewhere.test")
        address = try issue("address", "subjectAltName=IP:127.0.0.1,IP:::1")
        client = try issue("client", "extendedKeyUsage=clientAuth")
        commonNameOnly = try issue("common", "keyUsage=digitalSignature")
        expired = try issue("expired", "subjectAltName=DNS:localhost", days: -1)
        let base = directory.file("self")
        try openssl(
            "req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -days 30 -subj /CN=localhost "
                + "-addext subjectAltName=DNS:localhost -keyout \(base).key -out \(base).pem")
        selfSigned = TLSIdentity(certificateFile: base + ".pem", keyFile: base + ".key")
        encryptedKey = directory.file("encrypted.key")
        try openssl("ec -in \(good.keyFile) -aes128 -passout pass:secret -out \(encryptedKey)")
    }
}

private func openssl(_ arguments: String) throws {
    let process = Process()
    process.executableURL = URL(fileURLWithPath: "/usr/bin/openssl")
    process.arguments = arguments.split(separator: " ").map(String.init)
    process.standardError = FileHandle.nullDevice
    process.standardOutput = FileHandle.nullDevice
    try process.run()
    process.waitUntilExit()
    guard process.terminationStatus == 0 else { throw TestFailure("openssl \(arguments)") }
}
