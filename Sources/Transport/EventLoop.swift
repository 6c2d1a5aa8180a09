import CSystem
import Glibc
import Synchronization

/// A thread's event loop over epoll: sockets, timers and work posted by other threads.
///
/// Overview: everything that belongs to a loop is touched on its thread only; other threads reach it by `post`.
/// A loop runs on a thread of its own (`startThread`), on the caller's (`run`), or one turn at a time inside a
/// program's own loop (`runOnce`, when `descriptor` is readable).
///
/// Function: a turn is epoll_wait, input and output of ready sockets, due timers, posted work, end-of-turn work, and
/// the output of streams that asked for it.
///
/// Implementation: posted work is a Treiber stack that the loop takes whole and reverses. A poster writes to the
/// eventfd only if it finds the loop marked as asleep, and it is the one that takes the mark away, so a burst costs
/// one write. The eventfd and the timerfd are watched edge-triggered and never read.
public final class EventLoop: @unchecked Sendable {
    // Sendable: other threads use the atomics and the immutable descriptors only.

    /// The epoll descriptor. A program with a loop of its own polls it for reading and calls `runOnce`.
    public let descriptor: Int32
    /// Where the loop's streams receive; of use to a delegate only through the bytes it is given.
    public let readBuffer: UnsafeMutableRawBufferPointer
    /// What the loop's streams give to `stream(_:fill:)`.
    public let writeBuffer: UnsafeMutableRawBufferPointer
    /// Nanoseconds of the monotonic clock, read once in a turn.
    public private(set) var now: UInt64

    /// Encrypted bytes received, and to be sent; of TLS streams, made with the first of them.
    private(set) var cipherInput = UnsafeMutableRawBufferPointer(start: nil, count: 0)
    private(set) var cipherOutput = UnsafeMutableRawBufferPointer(start: nil, count: 0)

    private struct Slot {
        var source: EventSource?
        var generation: UInt32
        var nextFree: Int32
    }

    private let wakeDescriptor: Int32
    private var timerDescriptor: Int32 = -1
    private var armedDeadline: UInt64 = 0
    private let events: UnsafeMutablePointer<csystem_event>
    private var slots = ContiguousArray<Slot>()
    private var firstFreeSlot: Int32 = -1
    private var timers = TimerHeap()
    private var endOfTurn = ContiguousArray<LoopWork>()
    private var dirtyStreams = ContiguousArray<Stream>()
    private var readyStreams = ContiguousArray<Stream>()
    private var spareWork = ContiguousArray<LoopWork>()
    private var spareStreams = ContiguousArray<Stream>()
    private var hasEnded = false

    private let posted = Atomic<UnsafeMutableRawPointer?>(nil)
    /// Nobody would see a post without a write to the eventfd: in epoll_wait, and between turns of `runOnce`.
    private let isAsleep = Atomic<Bool>(true)
    private let isRunning = Atomic<Bool>(false)
    private let stopRequested = Atomic<Bool>(false)
    private let thread = Locked<UInt64?>(nil)

    private static let wakeData = UInt64.max
    private static let timerData = UInt64.max - 1
    private static var closedMark: UnsafeMutableRawPointer? { UnsafeMutableRawPointer(bitPattern: 1) }

    public init() throws(TransportError) {
        let epoll = csystem_epoll_create()
        guard epoll >= 0 else { throw .posix(-epoll, "make an event loop") }
        let wake = csystem_eventfd()
        guard wake >= 0 else {
            _ = csystem_close(epoll)
            throw .posix(-wake, "make an event loop")
        }
        let added = csystem_epoll_add(epoll, wake, CSYSTEM_IN | CSYSTEM_EDGE, Self.wakeData)
        guard added >= 0 else {
            _ = csystem_close(epoll)
            _ = csystem_close(wake)
            throw .posix(-added, "make an event loop")
        }
        descriptor = epoll
        wakeDescriptor = wake
        readBuffer = .allocate(byteCount: 320 << 10, alignment: 64)
        writeBuffer = .allocate(byteCount: 320 << 10, alignment: 64)
        events = .allocate(capacity: Int(CSYSTEM_MAX_EVENTS))
        events.initialize(repeating: csystem_event(), count: Int(CSYSTEM_MAX_EVENTS))
        now = csystem_now()
    }

    deinit {
        var node = posted.exchange(Self.closedMark, ordering: .acquiringAndReleasing)
        while let current = node, current != Self.closedMark {
            let work = Unmanaged<LoopWork>.fromOpaque(current).takeRetainedValue()
            node = work.next
            work.next = nil
        }
        thread.withLock {
            if let id = $0 { csystem_thread_detach(id) }
        }
        _ = csystem_close(descriptor)
        _ = csystem_close(wakeDescriptor)
        if timerDescriptor >= 0 { _ = csystem_close(timerDescriptor) }
        readBuffer.deallocate()
        writeBuffer.deallocate()
        cipherInput.deallocate()
        cipherOutput.deallocate()
        events.deallocate()
    }

    /// Whatever the loop's owner wants to find again by `currentAttachment`. Set before the loop runs; not retained.
    public var attachment: UnsafeRawPointer?

    // MARK: Running

    /// The attachment of the loop that runs on the calling thread, if any. Cheap.
    @inline(__always)
    public static var currentAttachment: UnsafeRawPointer? {
        guard let pointer = csystem_current_loop() else { return nil }
        return Unmanaged<EventLoop>.fromOpaque(pointer)._withUnsafeGuaranteedRef { $0.attachment }
    }

    /// The loop that runs on the calling thread, if any.
    public static var current: EventLoop? {
        guard let pointer = csystem_current_loop() else { return nil }
        return Unmanaged<EventLoop>.fromOpaque(pointer).takeUnretainedValue()
    }

    /// Whether the calling thread is inside this loop.
    public var isCurrent: Bool {
        UInt(bitPattern: csystem_current_loop()) == UInt(bitPattern: ObjectIdentifier(self))
    }

    /// What a loop's thread holds until it ends.
    private final class Start {
        let loop: EventLoop
        let owner: AnyObject?

        init(_ loop: EventLoop, _ owner: AnyObject?) {
            self.loop = loop
            self.owner = owner
        }
    }

    /// Runs the loop on a new thread with all signals blocked, until `stop`. Once in a loop's life.
    ///
    /// - Parameter owner: kept alive until the thread ends, as its `attachment` may be needed that long.
    public func startThread(name: String, keeping owner: AnyObject? = nil) throws(TransportError) {
        let context = Unmanaged.passRetained(Start(self, owner))
        var id: UInt64 = 0
        let result = csystem_thread_start(
            name, false,
            { context in
                guard let context else { return }
                let start = Unmanaged<Start>.fromOpaque(context).takeRetainedValue()
                withExtendedLifetime(start) { start.loop.run() }
            }, context.toOpaque(), &id)
        guard result >= 0 else {
            context.release()
            throw .posix(-result, "start the thread \(name)")
        }
        let started = id
        thread.withLock { $0 = started }
    }

    /// Runs on the calling thread until `stop`. Returns at once if the loop runs already.
    public func run() {
        guard let outer = enter() else { return }
        while !stopRequested.load(ordering: .acquiring) {
            _ = turn(maximumWait: -1)
        }
        finish()
        leave(outer)
    }

    /// One turn, on the calling thread.
    ///
    /// For a program that polls `descriptor`: it is readable while a turn has something to do, due timers and posted
    /// work included. After `stop` the next call is the last turn.
    /// - Parameter timeout: milliseconds to wait at most; 0: do not wait; -1: for ever.
    /// - Returns: how many events, timers and pieces of work were handled; 0 too if the loop runs already.
    @discardableResult
    public func runOnce(timeout: Int64) -> Int {
        guard let outer = enter() else {
            // The descriptor stays readable until the other thread's turn has got to what is there: who polls it must
            // not spin meanwhile.
            if !isCurrent { usleep(100) }
            return 0
        }
        defer { leave(outer) }
        isAsleep.store(false, ordering: .sequentiallyConsistent)
        let wasStopped = stopRequested.load(ordering: .acquiring)
        let count = wasStopped ? 0 : turn(maximumWait: timeout < 0 ? -1 : timeout)
        if stopRequested.load(ordering: .acquiring) {
            finish()
            return count
        }
        armTimer()
        isAsleep.store(true, ordering: .sequentiallyConsistent)
        if hasImmediateWork || posted.load(ordering: .sequentiallyConsistent) != nil { wake() }
        return count
    }

    /// Asks the loop to end, from any thread. What was posted before is still run; then streams that are left end with
    /// an error of domain `.closed`, and later posts are refused.
    public func stop() {
        stopRequested.store(true, ordering: .sequentiallyConsistent)
        wake()
    }

    /// Waits until the loop's thread has ended; on that thread itself, and without one, returns at once.
    public func join() {
        if isCurrent { return }
        thread.withLock {
            if let id = $0 { _ = csystem_thread_join(id) }
            $0 = nil
        }
    }

    /// Returns what `leave` needs, or nil if some thread is in the loop.
    private func enter() -> UnsafeMutableRawPointer?? {
        if isRunning.exchange(true, ordering: .acquiringAndReleasing) { return nil }
        csystem_begin_work()
        let outer = csystem_current_loop()
        csystem_set_current_loop(Unmanaged.passUnretained(self).toOpaque())
        now = csystem_now()
        return .some(outer)
    }

    private func leave(_ outer: UnsafeMutableRawPointer?) {
        csystem_set_current_loop(outer)
        csystem_end_work()
        isRunning.store(false, ordering: .releasing)
    }

    private var hasImmediateWork: Bool {
        !readyStreams.isEmpty || !dirtyStreams.isEmpty || !endOfTurn.isEmpty
    }

    private func turn(maximumWait: Int64) -> Int {
        var wait = maximumWait
        if hasImmediateWork {
            wait = 0
        } else if wait != 0, let next = timers.first {
            let time = csystem_now()
            let left = next.deadline > time ? next.deadline - time : 0
            // Rounded up: a turn just before the deadline would only be followed by another.
            let milliseconds = Int64(clamping: left / 1_000_000 + (left % 1_000_000 == 0 ? 0 : 1))
            if wait < 0 || milliseconds < wait { wait = milliseconds }
        }
        if wait != 0 {
            isAsleep.store(true, ordering: .sequentiallyConsistent)
            if posted.load(ordering: .sequentiallyConsistent) != nil
                || stopRequested.load(ordering: .sequentiallyConsistent)
            {
                wait = 0
            }
        }
        let found = csystem_epoll_wait(descriptor, events, CSYSTEM_MAX_EVENTS, Int32(clamping: wait))
        if isAsleep.load(ordering: .relaxed) { isAsleep.store(false, ordering: .sequentiallyConsistent) }
        now = csystem_now()
        #if DEBUG
            turnCount.add(1, ordering: .relaxed)
        #endif
        if found < 0 {
            // Only a broken descriptor fails so; going on would spin.
            stopRequested.store(true, ordering: .releasing)
            return 0
        }

        var handled = 0
        for index in 0..<Int(found) {
            let event = events[index]
            if event.data >= Self.timerData {
                if event.data == Self.timerData { armedDeadline = 0 }
                continue
            }
            handled += 1
            dispatch(event)
        }
        handled += continueStreams()
        handled += fireTimers()
        handled += runPosted()
        handled += runEndOfTurn()
        handled += flushStreams()
        return handled
    }

    private func dispatch(_ event: csystem_event) {
        let slot = Int(UInt32(truncatingIfNeeded: event.data))
        guard slot < slots.count,
            slots[slot].generation & 0x7fff_ffff == UInt32(truncatingIfNeeded: event.data >> 32),
            let source = slots[slot].source
        else { return }
        source.handle(events: event.events)
    }

    /// The last turn: runs what was posted, ends the sources, and refuses later posts.
    private func finish() {
        guard !hasEnded else { return }
        drain()
        // Again for what was begun by those that heard of the end.
        for _ in 0..<3 {
            for index in slots.indices { slots[index].source?.loopDidEnd() }
            drain()
        }
        hasEnded = true
        timers.removeAll()
        _ = runAll(posted.exchange(Self.closedMark, ordering: .acquiringAndReleasing))
        _ = runEndOfTurn()
        endOfTurn = []
        readyStreams = []
        dirtyStreams = []
    }

    private func drain() {
        // Bounded: work that posts itself for ever shall not keep a loop from ending.
        for _ in 0..<10_000 {
            if continueStreams() + runPosted() + runEndOfTurn() + flushStreams() == 0 { return }
        }
    }

    // MARK: Work

    /// Runs `work` on the loop's thread; any thread may call it. Work of one thread is run in the order of posting.
    ///
    /// Work that is waiting already is not queued twice: it runs after this call in any case.
    /// - Returns: false if the loop has ended; the work will never run.
    @discardableResult
    public func post(_ work: LoopWork) -> Bool {
        if work.isQueued.exchange(true, ordering: .acquiringAndReleasing) { return true }
        let node = Unmanaged.passRetained(work)
        let pointer = node.toOpaque()
        var head = posted.load(ordering: .relaxed)
        while true {
            if head == Self.closedMark {
                work.isQueued.store(false, ordering: .releasing)
                node.release()
                return false
            }
            work.next = head
            let (exchanged, found) = posted.weakCompareExchange(
                expected: head, desired: pointer, successOrdering: .sequentiallyConsistent,
                failureOrdering: .relaxed)
            if exchanged { break }
            head = found
        }
        if isAsleep.load(ordering: .sequentiallyConsistent) { wake() }
        return true
    }

    /// Runs a closure on the loop's thread; like `post(_:)` with work made for it.
    @discardableResult
    public func post(_ body: @escaping @Sendable () -> Void) -> Bool {
        post(ClosureWork(body))
    }

    /// Runs `work` once at the end of this turn, before sending and sleeping. Loop thread only.
    ///
    /// Work added while end-of-turn work runs belongs to the next turn, which then follows without sleep.
    public func atEndOfTurn(_ work: LoopWork) {
        if !hasEnded { endOfTurn.append(work) }
    }

    private func wake() {
        if isAsleep.exchange(false, ordering: .sequentiallyConsistent) {
            _ = csystem_eventfd_signal(wakeDescriptor)
            #if DEBUG
                wakeCount.add(1, ordering: .relaxed)
            #endif
        }
    }

    #if DEBUG
        /// How often the eventfd was written, for tests.
        let wakeCount = Atomic<Int>(0)
        /// How many turns there were, for tests.
        let turnCount = Atomic<Int>(0)
    #endif

    private func runPosted() -> Int {
        guard posted.load(ordering: .relaxed) != nil else { return 0 }
        return runAll(posted.exchange(nil, ordering: .acquiringAndReleasing))
    }

    private func runAll(_ newest: UnsafeMutableRawPointer?) -> Int {
        var node = newest
        var oldest: UnsafeMutableRawPointer?
        while let current = node {
            let work = Unmanaged<LoopWork>.fromOpaque(current).takeUnretainedValue()
            node = work.next
            work.next = oldest
            oldest = current
        }
        var count = 0
        while let current = oldest {
            let work = Unmanaged<LoopWork>.fromOpaque(current).takeRetainedValue()
            oldest = work.next
            work.next = nil
            _ = work.isQueued.exchange(false, ordering: .acquiringAndReleasing)
            work.run()
            count += 1
        }
        return count
    }

    private func runEndOfTurn() -> Int {
        guard !endOfTurn.isEmpty else { return 0 }
        var batch = ContiguousArray<LoopWork>()
        swap(&batch, &spareWork)
        swap(&batch, &endOfTurn)
        for work in batch { work.run() }
        let count = batch.count
        batch.removeAll(keepingCapacity: count <= 1024)
        swap(&batch, &spareWork)
        return count
    }

    // MARK: Time

    /// Reads the clock again; for work that has taken long.
    @discardableResult
    public func refreshNow() -> UInt64 {
        now = csystem_now()
        return now
    }

    /// Fires `timer` at `deadline` (nanoseconds, as `now`) or as soon after it as the loop can; a scheduled timer is
    /// moved. Loop thread only.
    public func schedule(_ timer: LoopTimer, at deadline: UInt64) {
        if hasEnded { return }
        timers.schedule(timer, at: deadline)
    }

    /// Forgets the timer, scheduled or not. Loop thread only.
    public func cancel(_ timer: LoopTimer) {
        timers.remove(timer)
    }

    /// `now` plus so many milliseconds; negative ones count as none, and too many as the end of time.
    func deadline(after milliseconds: Int64) -> UInt64 {
        let (span, long) = UInt64(max(milliseconds, 0)).multipliedReportingOverflow(by: 1_000_000)
        let (sum, late) = now.addingReportingOverflow(span)
        return long || late ? .max : sum
    }

    private func fireTimers() -> Int {
        var count = 0
        var budget = timers.count
        while budget > 0, let timer = timers.first, timer.deadline <= now {
            timers.remove(timer)
            timer.fire()
            count += 1
            budget -= 1
        }
        return count
    }

    /// Makes `descriptor` readable when the next timer is due. A timer armed too early costs one empty turn, which is
    /// less than to arm it anew whenever a deadline is put off.
    private func armTimer() {
        guard let next = timers.first else { return }
        if armedDeadline != 0, armedDeadline <= next.deadline, armedDeadline > now { return }
        if timerDescriptor < 0 {
            timerDescriptor = csystem_timerfd()
            guard timerDescriptor >= 0 else { return }
            _ = csystem_epoll_add(descriptor, timerDescriptor, CSYSTEM_IN | CSYSTEM_EDGE, Self.timerData)
        }
        armedDeadline = max(next.deadline, 1)
        _ = csystem_timerfd_set(timerDescriptor, armedDeadline)
    }

    // MARK: Sources

    func attach(_ source: EventSource) -> Int32 {
        if firstFreeSlot >= 0 {
            let index = firstFreeSlot
            firstFreeSlot = slots[Int(index)].nextFree
            slots[Int(index)].source = source
            return index
        }
        slots.append(Slot(source: source, generation: 0, nextFree: -1))
        return Int32(truncatingIfNeeded: slots.count - 1)
    }

    func detach(_ slot: Int32) {
        let index = Int(slot)
        let source = slots[index].source
        slots[index].source = nil
        slots[index].generation &+= 1
        slots[index].nextFree = firstFreeSlot
        firstFreeSlot = slot
        // The last reference may go here, when the table is consistent again.
        withExtendedLifetime(source) {}
    }

    func eventData(of slot: Int32) -> UInt64 {
        UInt64(slots[Int(slot)].generation & 0x7fff_ffff) << 32 | UInt64(UInt32(bitPattern: slot))
    }

    /// Lets the stream write at the end of this turn.
    func addDirty(_ stream: Stream) {
        if !hasEnded { dirtyStreams.append(stream) }
    }

    /// Lets the stream go on with bytes it holds, before the next sleep.
    func addReady(_ stream: Stream) {
        if !hasEnded { readyStreams.append(stream) }
    }

    private func flushStreams() -> Int {
        guard !dirtyStreams.isEmpty else { return 0 }
        var batch = ContiguousArray<Stream>()
        swap(&batch, &spareStreams)
        swap(&batch, &dirtyStreams)
        for stream in batch { stream.flushDirty() }
        return recycle(&batch)
    }

    private func continueStreams() -> Int {
        guard !readyStreams.isEmpty else { return 0 }
        var batch = ContiguousArray<Stream>()
        swap(&batch, &spareStreams)
        swap(&batch, &readyStreams)
        for stream in batch { stream.continueReady() }
        return recycle(&batch)
    }

    private func recycle(_ batch: inout ContiguousArray<Stream>) -> Int {
        let count = batch.count
        batch.removeAll(keepingCapacity: count <= 1024)
        swap(&batch, &spareStreams)
        return count
    }

    func makeCipherBuffers() {
        guard cipherInput.baseAddress == nil else { return }
        cipherInput = .allocate(byteCount: 256 << 10, alignment: 64)
        // The whole of `writeBuffer` encrypted: records of 16 KiB grow by some 30 bytes each.
        cipherOutput = .allocate(byteCount: 336 << 10, alignment: 64)
    }
}
