import BLIPProtocol
import CBLIP
import Synchronization
import Transport

/// A bundle that a program registers with connections as one: an observer, an interceptor and request handlers.
///
/// It is filled in by one thread and never changes once it is registered, so that any number of loops may use it.
public final class Module: SlotOwner, @unchecked Sendable {
    public static var handleKind: HandleKind { .module }
    public var slot: UInt32 = 0

    /// What the library's own modules do instead of calling the program. Loop thread.
    typealias Native = (Connection, UInt32, BLIPMessage?, blip_status) -> Void

    public let name: Text
    private let isInUse = Atomic<Bool>(false)
    private(set) var observer: Handler<blip_observe_fn>?
    /// `BLIP_OBSERVE_…` that the observer wants.
    private(set) var observed: UInt32 = 0
    /// Where the observer's events go; nil: it is called on the loop's thread.
    private(set) var queue: EventQueue?
    private(set) var interceptor: Handler<blip_intercept_fn>?
    /// `BLIP_INTERCEPT_…` that the interceptor wants.
    private(set) var intercepted: UInt32 = 0
    private(set) var handlers: [(profile: Text, handler: RequestHandler)] = []
    let native: Native?

    public init(name: Text) {
        self.name = name
        native = nil
    }

    /// One of the library's own.
    init(observing observed: UInt32, native: @escaping Native) {
        name = Text("")
        self.observed = observed
        self.native = native
        isInUse.store(true, ordering: .relaxed)
    }

    deinit { HandleTable.freeSlot(slot) }

    /// From now on it is not changed any more.
    func beginUse() { isInUse.store(true, ordering: .releasing) }

    private func change(_ body: () -> Void) -> blip_status {
        guard !isInUse.load(ordering: .acquiring) else { return BLIP_ERROR_STATE }
        body()
        return BLIP_OK
    }

    public func setObserver(_ what: UInt32, _ queue: EventQueue?, _ handler: Handler<blip_observe_fn>) -> blip_status {
        guard handler.function != nil || queue != nil else { return BLIP_ERROR_ARGUMENT }
        return change {
            observer = handler
            observed = what
            self.queue = queue
        }
    }

    public func setInterceptor(_ which: UInt32, _ handler: Handler<blip_intercept_fn>) -> blip_status {
        guard handler.function != nil, which != 0, which & ~(BLIP_INTERCEPT_SEND | BLIP_INTERCEPT_RECEIVE) == 0 else {
            return BLIP_ERROR_ARGUMENT
        }
        return change {
            interceptor = handler
            intercepted = which
        }
    }

    public func setHandler(_ profile: Text, _ handler: RequestHandler) -> blip_status {
        change {
            handlers.removeAll { $0.profile.equals(profile) }
            handlers.append((profile, handler))
        }
    }
}
