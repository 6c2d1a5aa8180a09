import CSystem
import Foundation
import Synchronization
import Testing

@testable import Transport

@Suite struct EventLoopTests {
    @Test("Work posted by many threads runs once each and in the order of its poster")
    func postingFromManyThreads() throws {
        let test = try TestLoop()
        let posters = 8
        let each = 5000
        let seen = Box([[Int]](repeating: [], count: posters))
        let threads = (0..<posters).map { poster in
            let thread = Thread {
                for index in 0..<each { test.loop.post { seen.value[poster].append(index) } }
            }
            thread.start()
            return thread
        }
        try test.wait("work") { seen.value.allSatisfy { $0.count == each } }
        #expect(try test.sync { seen.value.allSatisfy { $0 == Array(0..<each) } })
        withExtendedLifetime(threads) {}
    }

    final class CountingWork: LoopWork, @unchecked Sendable {
        let runs = Atomic<Int>(0)
        var onRun: (() -> Void)?
        override func run() {
            runs.add(1, ordering: .relaxed)
            onRun?()
        }
    }

    @Test("Work that is queued already is not queued twice, and can be posted again once it runs")
    func postingTwice() throws {
        let test = try TestLoop()
        let work = CountingWork()
        try test.sync {
            test.loop.post(work)
            test.loop.post(work)
        }
        try test.sync {}
        #expect(work.runs.load(ordering: .relaxed) == 1)
        test.loop.post(work)
        try test.sync {}
        #expect(work.runs.load(ordering: .relaxed) == 2)
    }

    @Test("A burst of posts costs one write to the eventfd, and none while the loop is awake")
    func wakeEconomy() throws {
        let test = try TestLoop()
        let entered = DispatchSemaphore(value: 0)
        let release = DispatchSemaphore(value: 0)
        test.loop.post {
            entered.signal()
            release.wait()
        }
        entered.wait()
        let before = test.loop.wakeCount.load(ordering: .relaxed)
        let count = Atomic<Int>(0)
        for _ in 0..<1000 { test.loop.post { count.add(1, ordering: .relaxed) } }
        #expect(test.loop.wakeCount.load(ordering: .relaxed) == before)
        release.signal()
        try test.sync {}
        #expect(count.load(ordering: .relaxed) == 1000)
        usleep(50_000)  // asleep by now
        let asleep = test.loop.wakeCount.load(ordering: .relaxed)
        try test.sync {}
        #expect(test.loop.wakeCount.load(ordering: .relaxed) == asleep + 1)
    }

    @Test("A turn runs timers, then posted work, then end-of-turn work")
    func orderInTurn() throws {
        let loop = try EventLoop()
        let order = Box([String]())
        let last = CountingWork()
        last.onRun = { order.value.append("end") }
        let timer = ClosureTimer()
        timer.body = { order.value.append("timer") }
        loop.post {
            loop.atEndOfTurn(last)
            loop.schedule(timer, at: 0)
            loop.post { order.value.append("posted") }
            order.value.append("first")
        }
        loop.runOnce(timeout: 0)
        loop.runOnce(timeout: 0)
        #expect(order.value == ["first", "end", "timer", "posted"])
    }

    @Test("Timers fire in the order of their deadlines, not early, and can be moved and cancelled")
    func timers() throws {
        let test = try TestLoop()
        let fired = Box([Int]())
        let early = Box(0)
        try test.sync {
            let start = test.loop.now
            var timers = [ClosureTimer]()
            for index in 0..<50 {
                let timer = ClosureTimer()
                let deadline = start + UInt64((index * 37) % 50) * 1_000_000
                timer.body = {
                    if csystem_now() < deadline { early.value += 1 }
                    fired.value.append((index * 37) % 50)
                }
                test.loop.schedule(timer, at: deadline)
                timers.append(timer)
            }
            // The one at 7 ms is put off to 60 ms, that at 9 ms is cancelled, twice.
            if let seven = timers.indices.first(where: { ($0 * 37) % 50 == 7 }) {
                timers[seven].body = { fired.value.append(60) }
                test.loop.schedule(timers[seven], at: start + 60_000_000)
            }
            if let nine = timers.indices.first(where: { ($0 * 37) % 50 == 9 }) {
                test.loop.cancel(timers[nine])
                test.loop.cancel(timers[nine])
                #expect(!timers[nine].isScheduled)
            }
        }
        try test.wait("timers") { fired.value.count == 49 }
        #expect(fired.value == (0..<50).filter { $0 != 7 && $0 != 9 } + [60])
        #expect(early.value == 0)
    }

    @Test("A timer that schedules itself for the past does not keep the loop from its other work")
    func restlessTimer() throws {
        let test = try TestLoop()
        let timer = ClosureTimer()
        let count = Box(0)
        try test.sync {
            timer.body = {
                count.value += 1
                test.loop.schedule(timer, at: 0)
            }
            test.loop.schedule(timer, at: 0)
        }
        try test.wait("firings") { count.value > 100 }
        try test.sync {
            test.loop.cancel(timer)
            timer.body = nil
        }
    }

    @Test("The heap keeps its order under random schedules and cancellations")
    func heap() {
        var heap = TimerHeap()
        var generator = SystemRandomNumberGenerator()
        let timers = (0..<200).map { _ in LoopTimer() }
        for _ in 0..<5000 {
            let timer = timers.randomElement(using: &generator) ?? timers[0]
            if Bool.random() {
                heap.schedule(timer, at: UInt64.random(in: 0..<1000))
            } else {
                heap.remove(timer)
            }
        }
        var last: UInt64 = 0
        var count = timers.count { $0.isScheduled }
        #expect(heap.count == count)
        while let first = heap.first {
            #expect(first.deadline >= last)
            last = first.deadline
            heap.remove(first)
            count -= 1
        }
        #expect(count == 0 && !timers.contains { $0.isScheduled })
    }

    private func isReadable(_ loop: EventLoop, within milliseconds: Int32) -> Bool {
        var poll = pollfd(fd: loop.descriptor, events: Int16(POLLIN), revents: 0)
        return Glibc.poll(&poll, 1, milliseconds) == 1
    }

    @Test("A program with its own loop sees the descriptor readable for posts, timers and work left over")
    func ownLoop() throws {
        let loop = try EventLoop()
        #expect(!isReadable(loop, within: 0))
        loop.post {}
        #expect(isReadable(loop, within: 0))
        loop.runOnce(timeout: 0)
        #expect(!isReadable(loop, within: 0))

        let poster = Thread { loop.post {} }
        poster.start()
        #expect(isReadable(loop, within: 5000))
        #expect(loop.runOnce(timeout: 0) == 1)
        loop.runOnce(timeout: 0)
        #expect(!isReadable(loop, within: 0))

        let fired = Box(0)
        let timer = ClosureTimer()
        timer.body = { fired.value += 1 }
        loop.post { loop.schedule(timer, at: loop.now + 30_000_000) }
        loop.runOnce(timeout: 0)
        #expect(!isReadable(loop, within: 5))
        #expect(isReadable(loop, within: 5000))
        for _ in 0..<3 where fired.value == 0 { loop.runOnce(timeout: 0) }
        #expect(fired.value == 1)
        loop.runOnce(timeout: 0)
        #expect(!isReadable(loop, within: 20))

        let again = CountingWork()
        loop.post {
            again.onRun = {
                again.onRun = nil
                loop.atEndOfTurn(again)
            }
            loop.atEndOfTurn(again)
        }
        loop.runOnce(timeout: 0)
        #expect(isReadable(loop, within: 0))
        loop.runOnce(timeout: 0)
        #expect(again.runs.load(ordering: .relaxed) == 2)
    }

    @Test("A timer put off later still fires when the armed timer turns out early")
    func timerPutOff() throws {
        let loop = try EventLoop()
        let timer = ClosureTimer()
        let fired = Box(false)
        timer.body = { fired.value = true }
        loop.post { loop.schedule(timer, at: loop.now + 10_000_000) }
        loop.runOnce(timeout: 0)
        loop.post { loop.schedule(timer, at: loop.now + 60_000_000) }
        loop.runOnce(timeout: 0)
        let end = Date().addingTimeInterval(5)
        var turns = 0
        while !fired.value, Date() < end {
            if isReadable(loop, within: 1000) {
                loop.runOnce(timeout: 0)
                turns += 1
            }
        }
        #expect(fired.value)
        #expect(turns <= 4)
    }

    @Test("runOnce waits as long as it is told, and until the next timer at most")
    func runOnceWaits() throws {
        let loop = try EventLoop()
        let start = csystem_now()
        loop.runOnce(timeout: 30)
        #expect(csystem_now() - start >= 30_000_000)
        let timer = ClosureTimer()
        let fired = Box(false)
        timer.body = { fired.value = true }
        loop.post { loop.schedule(timer, at: loop.now + 20_000_000) }
        loop.runOnce(timeout: 0)
        loop.runOnce(timeout: 10_000)
        if !fired.value { loop.runOnce(timeout: 10_000) }
        #expect(fired.value)
    }

    @Test("Work posted before the stop is run, and later work is refused")
    func stopping() throws {
        let loop = try EventLoop()
        let count = Box(0)
        for _ in 0..<100 { loop.post { count.value += 1 } }
        loop.stop()
        #expect(loop.post { loop.post { count.value += 1 } })
        try loop.startThread(name: "stopping")
        loop.join()
        #expect(count.value == 101)
        #expect(!loop.post { count.value += 1 })
        #expect(count.value == 101)
    }

    @Test("A loop that never ran lets its work go")
    func neverRun() throws {
        weak var work: CountingWork?
        do {
            let loop = try EventLoop()
            let posted = CountingWork()
            work = posted
            loop.post(posted)
        }
        #expect(work == nil)
    }

    @Test("Streams that are left when the loop stops end with an error")
    func streamsAtStop() throws {
        let loop = try EventLoop()
        let sockets = try Kind.unix.sockets()
        let peer = Box<Peer?>(nil)
        loop.post {
            peer.value = Peer(loop, sockets.0)
            peer.value?.stream.startReading()
        }
        try loop.startThread(name: "streams")
        usleep(10_000)
        loop.stop()
        loop.join()
        #expect(peer.value?.ends == 1)
        #expect(peer.value?.end?.domain == .closed)
        peer.value?.drop()
        close(sockets.1)
    }

    @Test("The current loop is known on its thread only, and its thread has all signals blocked")
    func current() throws {
        let test = try TestLoop()
        #expect(EventLoop.current == nil && !test.loop.isCurrent)
        try test.sync {
            #expect(EventLoop.current === test.loop && test.loop.isCurrent)
            test.loop.join()
            #expect(test.loop.runOnce(timeout: -1) == 0)
            var mask = sigset_t()
            pthread_sigmask(SIG_BLOCK, nil, &mask)
            for signal in [SIGINT, SIGTERM, SIGPIPE, SIGCHLD, SIGUSR1] { #expect(sigismember(&mask, signal) == 1) }
        }
    }
}
