import CSystem
import Glibc
import Synchronization

/// Events on their way to a thread of the program. Bounded: when it is full, the connections that feed it stop reading.
public final class EventQueue: SlotOwner, @unchecked Sendable {
    public static var handleKind: HandleKind { .queue }
    public var slot: UInt32 = 0

    private let capacity: Int
    private let mutex = UnsafeMutablePointer<pthread_mutex_t>.allocate(capacity: 1)
    /// What those sleep on who wait for events; changes with each. A condition of the system would do, but takes the mutex
    /// as contended when it wakes: one system call more for each event.
    private let changes = UnsafeMutablePointer<Atomic<UInt32>>.allocate(capacity: 1)
    // Guarded by `mutex`.
    private var events: ContiguousArray<Event?> = []
    private var head = 0
    private var sleepers = 0
    private var isWoken = false
    private var descriptor: Int32 = -1
    private var isSignalled = false
    private var paused: [Connection] = []
    /// The program has let go of the queue: nobody will ever take an event.
    private var isAbandoned = false

    public init(capacity: UInt32) {
        self.capacity = capacity == 0 ? 4096 : Int(capacity)
        pthread_mutex_init(mutex, nil)
        changes.initialize(to: Atomic(0))
    }

    deinit {
        if descriptor >= 0 { close(descriptor) }
        pthread_mutex_destroy(mutex)
        changes.deinitialize(count: 1)
        changes.deallocate()
        mutex.deallocate()
        HandleTable.freeSlot(slot)
    }

    /// Events that nobody can take any more are dropped, and their contexts released.
    public func handleDidEnd() {
        let (dropped, resumed) = locked { () -> ([Event], [Connection]) in
            isAbandoned = true
            defer {
                events = []
                head = 0
                paused = []
            }
            return (events[head...].compactMap { $0 }, paused)
        }
        for connection in resumed { connection.resumeAfterQueue() }
        _ = consume dropped
    }

    private func locked<R>(_ body: () -> R) -> R {
        pthread_mutex_lock(mutex)
        defer { pthread_mutex_unlock(mutex) }
        return body()
    }

    public var count: Int { locked { events.count - head } }

    /// Adds an event; true if the queue is now full, and `connection` should stop reading until it is resumed.
    func push(_ event: Event, pausing connection: Connection? = nil) -> Bool {
        let (hasSleeper, isFull) = locked { () -> (Bool, Bool) in
            guard !isAbandoned else { return (false, false) }
            events.append(event)
            changes.pointee.add(1, ordering: .relaxed)
            signalDescriptor()
            guard events.count - head >= capacity, let connection else { return (sleepers > 0, false) }
            paused.append(connection)
            return (sleepers > 0, true)
        }
        // Behind the lock: who is woken needs it first, and would go to sleep again at once.
        if hasSleeper { csystem_wake(changes) }
        return isFull
    }

    /// Adds what may get lost, and is, if the queue is full.
    func pushIfRoom(_ event: Event) {
        let hasSleeper = locked { () -> Bool in
            guard !isAbandoned, events.count - head < capacity else { return false }
            events.append(event)
            changes.pointee.add(1, ordering: .relaxed)
            signalDescriptor()
            return sleepers > 0
        }
        if hasSleeper { csystem_wake(changes) }
    }

    private func signalDescriptor() {
        guard descriptor >= 0, !isSignalled else { return }
        isSignalled = true
        var one: UInt64 = 1
        _ = write(descriptor, &one, 8)
    }

    private func clearDescriptor() {
        guard descriptor >= 0, isSignalled else { return }
        isSignalled = false
        var value: UInt64 = 0
        _ = read(descriptor, &value, 8)
    }

    /// The descriptor that is readable while events wait; −1 if none can be made.
    public func pollDescriptor() -> Int32 {
        locked {
            if descriptor < 0 {
                descriptor = csystem_eventfd()
                if events.count > head { signalDescriptor() }
            }
            return descriptor
        }
    }

    /// Makes one waiting `take` return now; if nobody waits, the next one.
    public func wake() {
        locked {
            isWoken = true
            changes.pointee.add(1, ordering: .relaxed)
            signalDescriptor()
        }
        csystem_wake(changes)
    }

    /// Takes up to `max` events; waits up to `timeout` milliseconds (−1 for ever) for the first.
    func take(max: Int, timeout: Int64) -> [Event] {
        let deadline = timeout < 0 ? UInt64.max : monotonicNanoseconds() &+ nanoseconds(timeout)
        pthread_mutex_lock(mutex)
        while events.count == head, !isWoken, timeout != 0 {
            let seen = changes.pointee.load(ordering: .relaxed)
            sleepers += 1
            pthread_mutex_unlock(mutex)
            csystem_wait(changes, seen, deadline)
            let isLate = timeout > 0 && monotonicNanoseconds() >= deadline
            pthread_mutex_lock(mutex)
            sleepers -= 1
            if isLate { break }
        }
        let count = min(max, events.count - head)
        var taken: [Event] = []
        taken.reserveCapacity(count)
        for index in head..<head + count {
            guard let event = events[index].take() else { continue }
            event.willLeaveQueue()
            taken.append(event)
        }
        head += count
        if head == events.count {
            events.removeAll(keepingCapacity: events.count <= 4096)
            head = 0
        } else if head > 1024, head * 2 > events.count {
            events.removeFirst(head)
            head = 0
        }
        isWoken = false
        if events.count == head { clearDescriptor() }
        var resumed: [Connection] = []
        if !paused.isEmpty, events.count - head <= capacity / 2 { swap(&resumed, &paused) }
        pthread_mutex_unlock(mutex)
        for connection in resumed { connection.resumeAfterQueue() }
        return taken
    }

    /// Runs the callbacks of up to `max` events.
    public func dispatch(max: Int, timeout: Int64) -> Int {
        var done = 0
        var timeout = timeout
        while done < max {
            let events = take(max: min(max - done, 256), timeout: timeout)
            if events.isEmpty { break }
            timeout = 0
            for event in events { event.run() }
            done += events.count
        }
        return done
    }

    /// Takes events for the program to look at.
    public func next(max: Int, timeout: Int64) -> [Event] {
        let events = take(max: min(max, 1 << 16), timeout: timeout).filter { !$0.isRevoked }
        for event in events { event.wasPulled() }
        return events
    }
}
