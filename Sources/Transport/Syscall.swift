import CSystem
import Glibc
import Synchronization

/// The system calls whose failures matter, one function each: the result, or a negated errno; EINTR is retried.
///
/// Debug builds let a test fail them or cut them short; release builds call straight through.
enum Syscall {
    enum Call: Sendable { case send, receive, accept, connect, socket, watch }

    enum Fault: Sendable {
        case none
        /// Fail with this (positive) errno.
        case error(Int32)
        /// Move at most so many bytes.
        case limit(Int)
    }

    #if DEBUG
        typealias Hook = @Sendable (Call, Int32) -> Fault
        private static let hook = Locked<Hook?>(nil)
        private static let isHooked = Atomic<Bool>(false)

        /// Tests: asks `new` before each call; nil ends that. The descriptor tells whose call it is.
        static func setFaultHook(_ new: Hook?) {
            hook.withLock { $0 = new }
            isHooked.store(new != nil, ordering: .releasing)
        }

        private static func fault(_ call: Call, _ descriptor: Int32) -> Fault {
            guard isHooked.load(ordering: .acquiring), let hook = hook.withLock({ $0 }) else { return .none }
            return hook(call, descriptor)
        }
    #else
        @inline(__always)
        private static func fault(_ call: Call, _ descriptor: Int32) -> Fault { .none }
    #endif

    @inline(__always)
    static func send(_ descriptor: Int32, _ bytes: UnsafeRawPointer, _ count: Int) -> Int {
        switch fault(.send, descriptor) {
        case .none: csystem_send(descriptor, bytes, count)
        case .error(let code): -Int(code)
        case .limit(let limit): csystem_send(descriptor, bytes, min(count, limit))
        }
    }

    @inline(__always)
    static func receive(_ descriptor: Int32, _ bytes: UnsafeMutableRawPointer, _ count: Int) -> Int {
        switch fault(.receive, descriptor) {
        case .none: csystem_receive(descriptor, bytes, count)
        case .error(let code): -Int(code)
        case .limit(let limit): csystem_receive(descriptor, bytes, min(count, limit))
        }
    }

    static func accept(_ descriptor: Int32, _ storage: inout sockaddr_storage, _ length: inout socklen_t) -> Int32 {
        if case .error(let code) = fault(.accept, descriptor) { return -code }
        return csystem_accept(descriptor, &storage, &length)
    }

    static func socket(_ family: Int32) -> Int32 {
        if case .error(let code) = fault(.socket, -1) { return -code }
        return csystem_socket(family)
    }

    static func connect(_ descriptor: Int32, _ address: SocketAddress) -> Int32 {
        if case .error(let code) = fault(.connect, descriptor) { return -code }
        return address.withStorage { csystem_connect(descriptor, $0, $1) }
    }

    static func bind(_ descriptor: Int32, _ address: SocketAddress) -> Int32 {
        address.withStorage { csystem_bind(descriptor, $0, $1) }
    }

    static func watch(_ epoll: Int32, _ descriptor: Int32, _ events: UInt32, _ data: UInt64) -> Int32 {
        if case .error(let code) = fault(.watch, descriptor) { return -code }
        return csystem_epoll_add(epoll, descriptor, events, data)
    }
}
