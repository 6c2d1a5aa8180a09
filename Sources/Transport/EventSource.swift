import CSystem

/// A descriptor that an event loop watches: the common part of streams, listening sockets and connecting ones.
///
/// The loop keeps a source alive from `attach` to `detach`, so that an event never meets a freed object.
@_documentation(visibility: internal)
public class EventSource: @unchecked Sendable {
    // Sendable: touched on its loop's thread only.
    public final let loop: EventLoop
    final var descriptor: Int32
    /// The place in the loop's table; -1 while it is not attached.
    final var slot: Int32 = -1
    /// What epoll watches now; 0: the descriptor is not in the epoll set.
    private final var interest: UInt32 = 0

    init(loop: EventLoop, descriptor: Int32) {
        self.loop = loop
        self.descriptor = descriptor
    }

    deinit {
        if descriptor >= 0 { _ = csystem_close(descriptor) }
    }

    /// The descriptor is ready; level-triggered.
    func handle(events: UInt32) {}

    /// The source leaves the loop; its descriptor is about to be closed or given away.
    func didDetach() {}

    /// The loop has ended: nothing will come any more.
    func loopDidEnd() {}

    /// Changes what epoll watches, if it is a change. Returns 0 or a negated errno.
    ///
    /// A source that is interested in nothing leaves the epoll set: epoll would report errors and hang-ups regardless.
    @discardableResult
    final func watch(_ events: UInt32) -> Int32 {
        guard events != interest, descriptor >= 0, slot >= 0 else { return 0 }
        let data = loop.eventData(of: slot)
        let result =
            if events == 0 {
                csystem_epoll_remove(loop.descriptor, descriptor)
            } else if interest == 0 {
                Syscall.watch(loop.descriptor, descriptor, events, data)
            } else {
                csystem_epoll_modify(loop.descriptor, descriptor, events, data)
            }
        if result >= 0 { interest = events }
        return result
    }

    final var watched: UInt32 { interest }

    final func attach() {
        guard slot < 0 else { return }
        slot = loop.attach(self)
    }

    /// Leaves the loop and closes the descriptor.
    final func detach() {
        watch(0)
        didDetach()
        if slot >= 0 {
            let slot = slot
            self.slot = -1
            loop.detach(slot)
        }
        if descriptor >= 0 {
            _ = csystem_close(descriptor)
            descriptor = -1
        }
    }

    /// Leaves the loop and gives the descriptor away.
    final func surrender() -> Int32 {
        let taken = descriptor
        watch(0)
        descriptor = -1
        detach()
        return taken
    }
}
