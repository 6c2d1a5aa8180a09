import CSystem

public final class EventLoop: @unchecked Sendable {
    public let descriptor: Int32
    public let readBuffer: UnsafeMutableRawBufferPointer
    public let writeBuffer: UnsafeMutableRawBufferPointer
    public init() throws(TransportError) {
        descriptor = csystem_epoll_create()
        readBuffer = .allocate(byteCount: 256 << 10, alignment: 64)
        writeBuffer = .allocate(byteCount: 320 << 10, alignment: 64)
    }
    public static var current: EventLoop? { nil }
    public var isCurrent: Bool { false }
    public func startThread(name: String) throws(TransportError) {}
    public func run() {}
    @discardableResult public func runOnce(timeout: Int64) -> Int { 0 }
    public func stop() {}
    public func join() {}
    @discardableResult public func post(_ work: LoopWork) -> Bool { true }
    @discardableResult public func post(_ body: @escaping @Sendable () -> Void) -> Bool { true }
    public private(set) var now: UInt64 = 0
    @discardableResult public func refreshNow() -> UInt64 { 0 }
    public func schedule(_ timer: LoopTimer, at deadline: UInt64) {}
    public func cancel(_ timer: LoopTimer) {}
    public func atEndOfTurn(_ work: LoopWork) {}
}
