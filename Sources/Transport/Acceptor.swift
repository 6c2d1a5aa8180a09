import CSystem
import Glibc

/// Accepts connections: one or more listening sockets with one port, or a Unix-domain socket.
///
/// `bind` and `adopt` work on any thread, so that a program hears at once why it cannot listen; all else belongs to the
/// loop's thread. Connections queue up in the kernel before `start`.
public final class Acceptor: @unchecked Sendable {
    // Sendable: made on any thread, then touched on the loop's thread only.

    /// Called with each accepted socket, non-blocking and close-on-exec, the callee's to close, and its peer's address.
    public var onAccept: ((Int32, SocketAddress) -> Void)?
    /// Called when accepting failed. The acceptor goes on: after 100 ms if descriptors or memory have run out, which is
    /// told every ten seconds.
    public var onError: ((TransportError) -> Void)?
    /// Where it listens.
    public let addresses: [SocketAddress]

    private let loop: EventLoop
    private var sockets: [Socket]
    private let pauseTimer = ClosureTimer()
    private var isStarted = false
    /// When the next failure of this kind may be told.
    private var nextReport: UInt64 = 0
    private var isPaused = false
    private var isClosed = false
    /// The socket file that `close` removes, if it is still this one.
    private var file: (path: String, device: UInt64, inode: UInt64)?

    /// Connections accepted in one turn before other events come first.
    private static let batch = 64
    private static let exhaustionPause: Int64 = 100
    private static let reportInterval: Int64 = 10_000
    private static let backlog: Int32 = 4096

    private init(loop: EventLoop, descriptors: [Int32]) {
        self.loop = loop
        addresses = descriptors.map { SocketAddress.local(of: $0) }
        sockets = descriptors.map { Socket(loop: loop, descriptor: $0) }
    }

    deinit {
        // Never started, or closed: no event can come.
        removeFile()
    }

    /// The port of all its sockets; 0 for Unix-domain ones.
    public var port: UInt16 { addresses.first?.port ?? 0 }

    // MARK: Making

    /// Listens on a port of this machine.
    ///
    /// - Parameters:
    ///   - host: "" for all addresses of both families, an address in digits, "localhost" for the loopback addresses
    ///     of both families, or the name of an interface, such as "eth0".
    ///   - port: 0: any free one.
    public static func bind(loop: EventLoop, host: String, port: UInt16) throws(TransportError) -> Acceptor {
        let subject = "listen on \(host.isEmpty ? "*" : host):\(port)"
        if host.isEmpty {
            if let any = SocketAddress(literal: "::", port: port) {
                do throws(TransportError) {
                    return Acceptor(loop: loop, descriptors: [try listen(any, bothFamilies: true)])
                } catch {
                    // Without IPv6 in the kernel there is IPv4 alone.
                    if error.kind != .unreachable { throw error }
                }
            }
            guard let any = SocketAddress(literal: "0.0.0.0", port: port) else { throw .posix(EINVAL, subject) }
            return Acceptor(loop: loop, descriptors: [try listen(any)])
        }
        var wanted = [SocketAddress]()
        if let literal = SocketAddress(literal: host, port: port) {
            return Acceptor(loop: loop, descriptors: [try listen(literal)])
        }
        if host == "localhost" {
            wanted = ["127.0.0.1", "::1"].compactMap { SocketAddress(literal: $0, port: port) }
        } else {
            guard !host.utf8.contains(0) else { throw .posix(EINVAL, "listen on \(host.debugDescription)") }
            for family in [AF_INET, AF_INET6] {
                var raw = sockaddr_storage()
                var length: socklen_t = 0
                guard csystem_interface_address(host, family, &raw, &length) == 1 else { continue }
                var address = SocketAddress(raw, length)
                address.port = port
                wanted.append(address)
            }
        }
        guard !wanted.isEmpty else {
            throw TransportError(
                domain: .posix, kind: .unreachable, code: EADDRNOTAVAIL,
                text: "\(subject): neither an address nor an interface of this machine")
        }
        return Acceptor(loop: loop, descriptors: try listenOnAll(wanted))
    }

    /// Sockets with one port. A free port of the first address may be taken on the second: then another is tried.
    private static func listenOnAll(_ wanted: [SocketAddress]) throws(TransportError) -> [Int32] {
        var tries = 10
        while true {
            var descriptors = [Int32]()
            var failure: TransportError?
            for var address in wanted {
                if let first = descriptors.first { address.port = SocketAddress.local(of: first).port }
                do throws(TransportError) {
                    descriptors.append(try listen(address))
                } catch {
                    // A family that this machine does not have is no error if there is the other.
                    if error.kind != .unreachable || (address == wanted.last && descriptors.isEmpty) {
                        failure = error
                        break
                    }
                }
            }
            guard let failure else { return descriptors }
            for descriptor in descriptors { _ = csystem_close(descriptor) }
            tries -= 1
            if failure.kind != .addressInUse || wanted.first?.port != 0 || tries == 0 { throw failure }
        }
    }

    private static func listen(
        _ address: SocketAddress, bothFamilies: Bool = false
    ) throws(TransportError) -> Int32 {
        let subject = "listen on \(address)"
        let descriptor = Syscall.socket(address.systemFamily)
        guard descriptor >= 0 else { throw .posix(-descriptor, subject) }
        var code: Int32 = 0
        if address.family != .unix { code = csystem_set_reuse_address(descriptor) }
        if code >= 0, address.family == .ipv6 { code = csystem_set_v6_only(descriptor, !bothFamilies) }
        if code >= 0 { code = Syscall.bind(descriptor, address) }
        if code >= 0 { code = csystem_listen(descriptor, backlog) }
        if code < 0 {
            _ = csystem_close(descriptor)
            throw .posix(-code, subject)
        }
        return descriptor
    }

    /// Listens on a Unix-domain socket.
    ///
    /// A socket file that nobody listens on any more is replaced; any other file is left alone. `close` removes the
    /// file if it is still the same.
    public static func bind(loop: EventLoop, unixPath: String) throws(TransportError) -> Acceptor {
        let address = SocketAddress(unixPath: unixPath)
        let descriptor: Int32
        do throws(TransportError) {
            descriptor = try listen(address)
        } catch {
            guard error.kind == .addressInUse, isStale(address, unixPath) else { throw error }
            let code = csystem_unlink(unixPath)
            if code < 0, code != -ENOENT { throw .posix(-code, "replace the stale socket \(unixPath)") }
            descriptor = try listen(address)
        }
        let acceptor = Acceptor(loop: loop, descriptors: [descriptor])
        var device: UInt64 = 0
        var inode: UInt64 = 0
        if csystem_path_kind(unixPath, &device, &inode) == 1 { acceptor.file = (unixPath, device, inode) }
        return acceptor
    }

    /// Whether the file is a socket that refuses connections.
    private static func isStale(_ address: SocketAddress, _ path: String) -> Bool {
        var device: UInt64 = 0
        var inode: UInt64 = 0
        guard csystem_path_kind(path, &device, &inode) == 1 else { return false }
        let descriptor = csystem_socket(AF_UNIX)
        guard descriptor >= 0 else { return false }
        defer { _ = csystem_close(descriptor) }
        return Syscall.connect(descriptor, address) == -ECONNREFUSED
    }

    /// Takes over sockets that listen already, such as those given by a service manager. A Unix-domain socket's file
    /// stays its maker's. On failure the descriptors stay the caller's.
    public static func adopt(loop: EventLoop, descriptors: [Int32]) throws(TransportError) -> Acceptor {
        for descriptor in descriptors { try checkListening(descriptor) }
        return Acceptor(loop: loop, descriptors: descriptors)
    }

    public static func adopt(loop: EventLoop, descriptor: Int32) throws(TransportError) -> Acceptor {
        try adopt(loop: loop, descriptors: [descriptor])
    }

    private static func checkListening(_ descriptor: Int32) throws(TransportError) {
        let listening = csystem_is_listening(descriptor)
        guard listening >= 0 else { throw .posix(-listening, "listen on descriptor \(descriptor)") }
        guard listening == 1 else { throw .posix(EINVAL, "listen on descriptor \(descriptor), which does not listen") }
        let code = csystem_set_nonblocking(descriptor)
        guard code >= 0 else { throw .posix(-code, "listen on descriptor \(descriptor)") }
    }

    /// Leaves the sockets that `adopt` was given to the caller. In place of `start`, and of everything else; any thread.
    public func giveBack() {
        guard !isStarted, !isClosed else { return }
        isClosed = true
        for socket in sockets { _ = socket.surrender() }
        sockets = []
    }

    // MARK: Running

    /// Begins to accept.
    public func start() {
        guard !isStarted, !isClosed else { return }
        isStarted = true
        pauseTimer.body = { [weak self] in self?.watch() }
        for socket in sockets {
            socket.owner = self
            socket.attach()
        }
        watch()
    }

    /// Leaves new connections in the kernel's queue until `resume`.
    public func pause() {
        isPaused = true
        watch()
    }

    public func resume() {
        isPaused = false
        watch()
    }

    /// Stops listening and removes the socket file; accepted connections go on. No callback comes any more.
    public func close() {
        guard !isClosed else { return }
        isClosed = true
        loop.cancel(pauseTimer)
        pauseTimer.body = nil
        onAccept = nil
        onError = nil
        // The file first: who finds it shall find somebody listening.
        removeFile()
        let left = sockets
        sockets = []
        for socket in left {
            socket.owner = nil
            socket.detach()
        }
    }

    private func removeFile() {
        guard let file else { return }
        self.file = nil
        var device: UInt64 = 0
        var inode: UInt64 = 0
        if csystem_path_kind(file.path, &device, &inode) == 1, device == file.device, inode == file.inode {
            _ = csystem_unlink(file.path)
        }
    }

    private func watch() {
        guard isStarted, !isClosed else { return }
        let isWatched = !isPaused && !pauseTimer.isScheduled
        for socket in sockets {
            let code = socket.watch(isWatched ? CSYSTEM_IN : 0)
            if code < 0 { report(-code) }
        }
    }

    private func report(_ code: Int32) {
        onError?(.posix(code, "accept on \(addresses.map(\.description).joined(separator: " and "))"))
    }

    /// Says so once in a while: it is tried again ten times a second for as long as it lasts.
    private func reportExhaustion(_ code: Int32) {
        guard nextReport <= loop.now else { return }
        nextReport = loop.deadline(after: Self.reportInterval)
        report(code)
    }

    private func acceptBatch(_ socket: Socket) {
        var raw = sockaddr_storage()
        var length: socklen_t = 0
        for _ in 0..<Self.batch {
            if isPaused || isClosed { return }
            let result = Syscall.accept(socket.descriptor, &raw, &length)
            if result >= 0 {
                if let onAccept {
                    onAccept(result, SocketAddress(raw, length))
                } else {
                    _ = csystem_close(result)
                }
                continue
            }
            switch -result {
            case EAGAIN: return
            case ECONNABORTED, EPROTO, EPERM, ENETDOWN, ENOPROTOOPT, EHOSTDOWN, ENONET, EHOSTUNREACH, EOPNOTSUPP,
                ENETUNREACH:
                // Errors of the connection that was to be accepted; the next may be good.
                continue
            default:
                // The connection stays in the queue, so the socket stays readable: to go on at once would spin.
                loop.schedule(pauseTimer, at: loop.deadline(after: Self.exhaustionPause))
                watch()
                reportExhaustion(-result)
                return
            }
        }
    }

    /// One listening socket.
    private final class Socket: EventSource, @unchecked Sendable {
        var owner: Acceptor?

        override func handle(events: UInt32) {
            owner?.acceptBatch(self)
        }

        override func loopDidEnd() {
            owner?.close()
        }
    }
}
