import CSystem
import Foundation
import Synchronization
import Testing

@testable import Transport

@Suite struct StreamTests {
    @Test("Bytes go both ways, small and large", arguments: Kind.allCases)
    func echo(_ kind: Kind) throws {
        let test = try TestLoop()
        let (a, b) = try connectedPeers(test, kind)
        try test.sync {
            b.consume = { _, bytes in
                b.send(Array(bytes))
                return bytes.count
            }
            a.stream.startReading()
            b.stream.startReading()
        }
        for size in [1, 2, 100, 16_384, 16_385, 70_000, 1_000_000] {
            var message = [UInt8](repeating: 0, count: size)
            message.withUnsafeMutableBytes { bytes in
                var pattern = Pattern()
                pattern.write(bytes)
            }
            let expected = message
            try test.sync {
                a.received = []
                a.send(expected)
            }
            try test.wait("echo of \(size)") { a.received.count >= size }
            #expect(try test.sync { a.received == expected })
        }
        #expect(try test.sync { !a.stream.ownsBuffers && !b.stream.ownsBuffers })
        #expect(try test.sync { a.stream.bytesSent == b.stream.bytesReceived })
        #expect(try test.sync { a.stream.bytesSent > 1_000_000 && a.ends == 0 && a.flushes > 0 })
        try closeAll(test, a, b)
    }

    @Test("Large transfers both ways at once survive slow readers", arguments: Kind.allCases)
    func bigTransfers(_ kind: Kind) throws {
        let loops = (try TestLoop(), try TestLoop())
        let (a, b) = try connectedPeers(loops, kind)
        let size = 24 << 20
        let expected = Pattern.checksum(size)
        for (test, peer) in [(loops.0, a), (loops.1, b)] {
            try test.sync {
                peer.keepsBytes = false
                peer.generated = size
                let timer = ClosureTimer()
                let loop = test.loop
                var sinceLast = 0
                peer.consume = { stream, bytes in
                    peer.sha.add(UnsafeRawBufferPointer(bytes))
                    sinceLast += bytes.count
                    if sinceLast > 2 << 20 {
                        sinceLast = 0
                        stream.pauseReading()
                        timer.body = { stream.resumeReading() }
                        loop.schedule(timer, at: loop.now + 2_000_000)
                    }
                    return bytes.count
                }
                peer.stream.startReading()
                peer.stream.requestOutput()
            }
        }
        try loops.0.wait("all of it", seconds: 60) { a.sha.count >= size || a.ends > 0 }
        try loops.1.wait("all of it", seconds: 60) { b.sha.count >= size || b.ends > 0 }
        #expect(try loops.0.sync { a.sha == expected })
        #expect(try loops.1.sync { b.sha == expected })
        try closeAll(loops.0, a)
        try closeAll(loops.1, b)
    }

    @Test("Working in steps, less is received at once, and nothing is lost", arguments: [Kind.unix, .tlsOverUnix])
    func steps(_ kind: Kind) throws {
        let test = try TestLoop()
        let (a, b) = try connectedPeers(test, kind)
        let size = 3 << 20
        let step = 32 << 10
        var expected = Checksum()
        var pattern = Pattern()
        for inSteps in [false, true] {
            let bytes = [UInt8](unsafeUninitializedCapacity: size) { bytes, count in
                pattern.write(UnsafeMutableRawBufferPointer(bytes))
                count = size
            }
            bytes.withUnsafeBytes { expected.add($0) }
            let largest = Box(0)
            try test.sync {
                for peer in [a, b] { peer.stream.worksInSteps = inSteps }
                b.consume = { _, bytes in
                    largest.value = max(largest.value, bytes.count)
                    b.sha.add(UnsafeRawBufferPointer(bytes))
                    return bytes.count
                }
                a.send(bytes)
            }
            // The socket is as full as it gets.
            try test.wait("blocked sender") { a.stream.bytesPending > 0 }
            try test.sync { b.stream.startReading() }
            let sum = expected
            try test.wait("all of it") { b.sha.count >= sum.count }
            try test.sync { b.stream.pauseReading() }
            #expect(try test.sync { b.sha == sum })
            #expect(inSteps ? largest.value <= step : largest.value > step, "\(largest.value) bytes at once")
        }
        try closeAll(test, a, b)
    }

    @Test("A frame parser gets the rest and the new bytes in one piece, however they are cut", arguments: Kind.allCases)
    func framing(_ kind: Kind) throws {
        let test = try TestLoop()
        let (a, b) = try connectedPeers(test, kind)
        let sizes = [0, 1, 5, 300, 16_000, 40_000, 3, 700_000, 2_000_000, 9, 64_000, 1]
        let good = Box(0)
        try test.sync {
            // Frames: a length of four bytes, then that many bytes of the frame's number.
            b.consume = { stream, bytes in
                var start = 0
                while bytes.count - start >= 4 {
                    let length = Int(UInt32(littleEndian: bytes.loadUnaligned(fromByteOffset: start, as: UInt32.self)))
                    guard bytes.count - start >= 4 + length else {
                        stream.bytesWanted = 4 + length
                        break
                    }
                    let number = UInt8(truncatingIfNeeded: good.value)
                    let content = bytes[start + 4..<start + 4 + length]
                    #expect(length == sizes[good.value % sizes.count])
                    #expect(content.allSatisfy { $0 == number })
                    good.value += 1
                    start += 4 + length
                }
                return start
            }
            b.stream.startReading()
            var all = [UInt8]()
            for number in 0..<sizes.count * 2 {
                let size = sizes[number % sizes.count]
                withUnsafeBytes(of: UInt32(size).littleEndian) { all += $0 }
                all += [UInt8](repeating: UInt8(truncatingIfNeeded: number), count: size)
            }
            a.send(all)
        }
        try test.wait("frames") { good.value == sizes.count * 2 }
        #expect(try test.sync { !b.stream.ownsBuffers })
        try closeAll(test, a, b)
    }

    @Test("Single bytes in and out make the same stream", arguments: [Kind.tcp4, .tls])
    func singleBytes(_ kind: Kind) throws {
        let test = try TestLoop()
        let sockets = try kind.sockets()
        let descriptors = [sockets.0, sockets.1]
        let hook = FaultHooks.add { call, descriptor in
            descriptors.contains(descriptor) && (call == .send || call == .receive) ? .limit(1) : .none
        }
        defer { FaultHooks.remove(hook) }
        let (a, b) = try test.sync { (Peer(test.loop, sockets.0), Peer(test.loop, sockets.1)) }
        let certificates = try Certificates.shared()
        let contexts = (
            try TLSContext.client(caFile: certificates.ca), try TLSContext.server(identity: certificates.good)
        )
        let expected = Array("The quick brown fox jumps over the lazy dog".utf8)
        try test.sync {
            if kind.isTLS {
                a.stream.startTLS(contexts.0, serverName: "localhost", isServer: false)
                b.stream.startTLS(contexts.1, serverName: nil, isServer: true)
            }
            // Consumes only when all is there: each call has everything so far.
            b.consume = { _, bytes in
                #expect(Array(bytes) == Array(expected.prefix(bytes.count)))
                if bytes.count == expected.count { b.received = Array(bytes) }
                return bytes.count == expected.count ? bytes.count : 0
            }
            b.stream.startReading()
            a.send(expected)
        }
        try test.wait("bytes") { b.received == expected }
        try closeAll(test, a, b)
    }

    @Test(
        "A paused stream gets nothing, does not spin, and gives everything again when resumed", arguments: Kind.allCases
    )
    func pausing(_ kind: Kind) throws {
        let test = try TestLoop()
        let (a, b) = try connectedPeers(test, kind)
        try test.sync {
            b.consume = { stream, bytes in
                stream.pauseReading()
                return 0
            }
            b.stream.startReading()
            a.send([1, 2, 3])
        }
        try test.wait("first bytes") { b.calls == 1 }
        try test.sync { a.send([4, 5, 6]) }
        usleep(30_000)
        let before = test.loop.turnCount.load(ordering: .relaxed)
        usleep(100_000)
        #expect(test.loop.turnCount.load(ordering: .relaxed) - before <= 3)
        #expect(try test.sync { b.calls } == 1)
        try test.sync {
            b.consume = nil
            b.stream.resumeReading()
        }
        try test.wait("the rest") { b.received == [1, 2, 3, 4, 5, 6] }
        try closeAll(test, a, b)
    }

    @Test(
        "A stream paused at its start does not spin when the peer breaks the connection", arguments: [Kind.tcp4, .unix])
    func pausedAndBroken(_ kind: Kind) throws {
        let test = try TestLoop()
        let (a, b) = try connectedPeers(test, kind)
        try test.sync {
            b.stream.startReading()
            b.stream.pauseReading()
            a.stream.close()
        }
        usleep(20_000)
        let before = test.loop.turnCount.load(ordering: .relaxed)
        usleep(100_000)
        #expect(test.loop.turnCount.load(ordering: .relaxed) - before <= 3)
        #expect(try test.sync { b.ends } == 0)
        try test.sync { b.stream.resumeReading() }
        try test.wait("end") { b.ends == 1 }
        try closeAll(test, a, b)
    }

    @Test("Pausing and resuming inside the callback gives the unconsumed bytes again", arguments: Kind.allCases)
    func resumeInside(_ kind: Kind) throws {
        let test = try TestLoop()
        let (a, b) = try connectedPeers(test, kind)
        try test.sync {
            b.consume = { stream, bytes in
                b.received.append(bytes[0])
                if bytes.count > 1 {
                    stream.pauseReading()
                    stream.resumeReading()
                }
                return 1
            }
            b.stream.startReading()
            a.send([1, 2, 3, 4, 5])
        }
        try test.wait("bytes") { b.received == [1, 2, 3, 4, 5] }
        try closeAll(test, a, b)
    }

    enum Callback: String, CaseIterable, Sendable { case receive, fill, flush, secure, end }

    @Test(
        "Closing inside any callback, with all references dropped, is safe", arguments: Kind.allCases, Callback.allCases
    )
    func closeInside(_ kind: Kind, _ callback: Callback) throws {
        let test = try TestLoop()
        let sockets = try kind.sockets()
        let certificates = try Certificates.shared()
        let contexts = (
            try TLSContext.client(caFile: certificates.ca), try TLSContext.server(identity: certificates.good)
        )
        let closed = Box(false)
        let isGone = Box<() -> Bool>({ false })
        let a = Box<Peer?>(try test.sync { Peer(test.loop, sockets.0) })
        let b = try test.sync { Peer(test.loop, sockets.1) }
        try test.sync {
            guard let peer = a.value else { return }
            weak let weakPeer = peer
            weak let weakStream = peer.stream
            isGone.value = { weakPeer == nil && weakStream == nil }
            let close: (Stream) -> Void = { stream in
                closed.value = true
                stream.close()
                stream.close()
                stream.requestOutput()
                stream.resumeReading()
                stream.finishOutput()
                a.value?.drop()
                a.value = nil
            }
            switch callback {
            case .receive:
                peer.consume = { stream, bytes in
                    close(stream)
                    // Still valid: the call is not over.
                    return bytes.reduce(0) { $0 + Int($1) } >= 0 ? bytes.count : 0
                }
            case .fill: peer.onFill = close
            case .flush: peer.onFlush = close
            case .secure: peer.onSecure = close
            case .end: peer.onEnd = close
            }
            if kind.isTLS {
                b.stream.startTLS(contexts.1, serverName: nil, isServer: true)
                peer.stream.startTLS(contexts.0, serverName: "localhost", isServer: false)
            } else if callback == .secure {
                close(peer.stream)
            }
            peer.stream?.startReading()
            peer.stream?.requestOutput()
            if callback == .flush { a.value?.send([1]) }
            b.stream.startReading()
            b.send([7, 7, 7])
            b.onFlush = { stream in if callback == .end { stream.finishOutput() } }
        }
        try test.wait("the callback") { closed.value }
        try test.wait("the peer's end") { b.ends == 1 || callback == .end }
        try test.wait("no references") { isGone.value() }
        try closeAll(test, b)
    }

    @Test("FIN, or close_notify, ends the stream in order, after all bytes", arguments: Kind.allCases)
    func orderlyEnd(_ kind: Kind) throws {
        let test = try TestLoop()
        let (a, b) = try connectedPeers(test, kind)
        let size = 3 << 20
        try test.sync {
            b.keepsBytes = false
            b.stream.startReading()
            a.stream.startReading()
            a.generated = size
            a.stream.requestOutput()
            a.stream.finishOutput()
        }
        try test.wait("end") { b.ends == 1 }
        #expect(try test.sync { b.end == nil && b.sha == Pattern.checksum(size) })
        try test.wait("the other end") { a.ends == 1 }
        #expect(try test.sync { a.end } == nil)
        try closeAll(test, a, b)
    }

    @Test("After finishing its output a stream still receives", arguments: Kind.allCases)
    func halfClose(_ kind: Kind) throws {
        let test = try TestLoop()
        let (a, b) = try connectedPeers(test, kind)
        try test.sync {
            a.stream.startReading()
            a.stream.finishOutput()
            b.send([1, 2, 3])
        }
        try test.wait("bytes") { a.received == [1, 2, 3] }
        #expect(try test.sync { a.ends } == 0)
        try closeAll(test, a, b)
    }

    @Test("A stream whose peer has ended its direction goes on if its delegate wants", arguments: Kind.allCases)
    func inputEnds(_ kind: Kind) throws {
        let test = try TestLoop()
        let (a, b) = try connectedPeers(test, kind)
        let size = 3 << 20
        try test.sync {
            b.outlivesInput = true
            b.consume = { _, bytes in bytes.count - 2 }
            b.stream.startReading()
            a.stream.startReading()
            a.keepsBytes = false
            a.send([1, 2, 3])
            a.stream.finishOutput()
        }
        try test.wait("the end of the input") { b.inputEnds == [2] }
        try test.sync {
            b.stream.resumeReading()
            b.generated = size
            b.stream.requestOutput()
            b.stream.finishOutput()
        }
        try test.wait("both ends") { a.ends == 1 && b.ends == 1 }
        #expect(try test.sync { a.end == nil && b.end == nil && a.sha == Pattern.checksum(size) })
        #expect(try test.sync { b.inputEnds } == [2])
        try closeAll(test, a, b)
    }

    @Test("A peer that has gone ends a stream that goes on without input", arguments: Kind.allCases)
    func goneAfterInput(_ kind: Kind) throws {
        let test = try TestLoop()
        let (a, b) = try connectedPeers(test, kind)
        try test.sync {
            b.outlivesInput = true
            b.stream.startReading()
            a.stream.close()
        }
        try test.wait("the end of the input") { b.inputEnds == [0] || b.ends == 1 }
        try test.sync {
            b.generated = 1 << 20
            b.stream.requestOutput()
        }
        try test.wait("the end") { b.ends == 1 }
        #expect(try test.sync { b.end?.kind } == .reset)
        try closeAll(test, a, b)
    }

    @Test("A reader that pauses gets all that came before the end, and then the end", arguments: Kind.allCases)
    func pausedBeforeTheEnd(_ kind: Kind) throws {
        let test = try TestLoop()
        let (a, b) = try connectedPeers(test, kind)
        let bytes = [UInt8](1...100)
        try test.sync {
            a.send(bytes)
            a.stream.finishOutput()
        }
        usleep(20_000)
        try test.sync {
            b.consume = { stream, new in
                b.received.append(new[0])
                stream.pauseReading()
                test.loop.post { stream.resumeReading() }
                return 1
            }
            b.stream.startReading()
        }
        try test.wait("end") { b.ends == 1 }
        #expect(try test.sync { b.received } == bytes)
        #expect(try test.sync { b.end } == nil)
        try closeAll(test, a, b)
    }

    @Test("A reset is an error that names the connection")
    func reset() throws {
        let test = try TestLoop()
        let sockets = try Kind.tcp4.sockets()
        let peer = try test.sync { Peer(test.loop, sockets.0) }
        try test.sync { peer.stream.startReading() }
        var linger = linger(l_onoff: 1, l_linger: 0)
        setsockopt(sockets.1, SOL_SOCKET, SO_LINGER, &linger, socklen_t(MemoryLayout.size(ofValue: linger)))
        close(sockets.1)
        try test.wait("end") { peer.ends == 1 }
        let error = try test.sync { peer.end }
        #expect(error?.kind == .reset && error?.domain == .posix && error?.code == ECONNRESET)
        #expect(error?.text.contains("127.0.0.1:") == true)
        try closeAll(test, peer)
    }

    @Test(
        "What the peer sent before it went away is read before a failed write is reported",
        arguments: [Kind.tcp4, .unix])
    func lastWords(_ kind: Kind) throws {
        let test = try TestLoop()
        let sockets = try kind.sockets()
        let last = Array("go away".utf8)
        #expect(csystem_send(sockets.1, last, last.count) == last.count)
        let hook = FaultHooks.add { call, descriptor in
            descriptor == sockets.0 && call == .send ? .error(EPIPE) : .none
        }
        defer { FaultHooks.remove(hook) }
        close(sockets.1)
        let peer = try test.sync { Peer(test.loop, sockets.0) }
        try test.sync {
            peer.send([1])
            peer.stream.startReading()
        }
        try test.wait("end") { peer.ends == 1 }
        #expect(try test.sync { peer.received } == last)
        #expect(try test.sync { peer.end?.code } == EPIPE)
        try closeAll(test, peer)
    }

    @Test("A write that fails for want of memory ends the stream")
    func failedWrite() throws {
        let test = try TestLoop()
        let (a, b) = try connectedPeers(test, .tcp4)
        let descriptor = try test.sync { a.stream.descriptor }
        let hook = FaultHooks.add { call, other in other == descriptor && call == .send ? .error(ENOBUFS) : .none }
        defer { FaultHooks.remove(hook) }
        try test.sync {
            a.stream.startReading()
            a.send([1])
        }
        try test.wait("end") { a.ends == 1 }
        #expect(try test.sync { a.end?.kind } == .resources)
        try closeAll(test, a, b)
    }

    @Test("A stream that cannot be watched ends with an error")
    func failedWatch() throws {
        let test = try TestLoop()
        let sockets = try Kind.unix.sockets()
        let hook = FaultHooks.add { call, other in other == sockets.0 && call == .watch ? .error(ENOSPC) : .none }
        defer { FaultHooks.remove(hook) }
        let peer = try test.sync { Peer(test.loop, sockets.0) }
        try test.sync { peer.stream.startReading() }
        try test.wait("end") { peer.ends == 1 }
        #expect(try test.sync { peer.end?.code } == ENOSPC)
        close(sockets.1)
        try closeAll(test, peer)
    }

    @Test("A stream with endless output leaves turns to the others")
    func fairness() throws {
        let test = try TestLoop()
        let sink = try TestLoop()
        let (greedy, reader) = try connectedPeers((test, sink), .unix)
        let (a, b) = try connectedPeers(test, .unix)
        try sink.sync {
            reader.keepsBytes = false
            reader.stream.startReading()
        }
        try test.sync {
            greedy.generated = .max
            greedy.stream.requestOutput()
            b.stream.startReading()
        }
        for index in 0..<20 {
            try test.sync { a.send([UInt8(index)]) }
            try test.wait("byte \(index)") { b.received.count == index + 1 }
        }
        #expect(try sink.sync { reader.sha.count } > 0)
        try closeAll(test, greedy, a, b)
        try closeAll(sink, reader)
    }

    @Test("One turn reads once and sends once for a small message")
    func systemCalls() throws {
        let test = try TestLoop()
        let (a, b) = try connectedPeers(test, .tcp4)
        let descriptors = try test.sync { [a.stream.descriptor, b.stream.descriptor] }
        let counts = Atomic<Int>(0)
        let watches = Atomic<Int>(0)
        try test.sync {
            a.stream.startReading()
            b.consume = { _, bytes in
                b.send(Array(bytes))
                return bytes.count
            }
            b.stream.startReading()
        }
        let hook = FaultHooks.add { call, descriptor in
            if descriptors.contains(descriptor) {
                if call == .send || call == .receive { counts.add(1, ordering: .relaxed) }
                if call == .watch { watches.add(1, ordering: .relaxed) }
            }
            return .none
        }
        defer { FaultHooks.remove(hook) }
        for index in 1...100 {
            try test.sync { a.send([1]) }
            try test.wait("echo") { a.received.count == index }
        }
        #expect(counts.load(ordering: .relaxed) == 400)
        #expect(watches.load(ordering: .relaxed) == 0)
        try closeAll(test, a, b)
    }

    @Test("Addresses are known on both sides, and after the end")
    func addresses() throws {
        let test = try TestLoop()
        for kind in [Kind.tcp4, .tcp6] {
            let (a, b) = try connectedPeers(test, kind)
            let (local, remote) = try test.sync { (a.stream.localAddress, b.stream.remoteAddress) }
            #expect(local == remote && local.port != 0 && local.isLoopback)
            #expect(local.description.hasPrefix(kind == .tcp4 ? "127.0.0.1:" : "[::1]:"))
            try test.sync { a.stream.close() }
            #expect(try test.sync { a.stream.remoteAddress.port } != 0)
            try closeAll(test, a, b)
        }
    }
}

/// Fault hooks of several tests at once; each concerns its own descriptors.
enum FaultHooks {
    private static let hooks = Locked<[Int: Syscall.Hook]>([:])
    private static let next = Atomic<Int>(0)

    static func add(_ hook: @escaping Syscall.Hook) -> Int {
        let id = next.add(1, ordering: .relaxed).newValue
        hooks.withLock { $0[id] = hook }
        Syscall.setFaultHook { call, descriptor in
            for hook in hooks.withLock({ Array($0.values) }) {
                let fault = hook(call, descriptor)
                if case .none = fault { continue }
                return fault
            }
            return .none
        }
        return id
    }

    static func remove(_ id: Int) {
        hooks.withLock { $0[id] = nil }
    }
}

@Suite struct ByteQueueTests {
    @Test("A queue keeps its bytes in order and in one piece under any use")
    func randomUse() {
        var queue = ByteQueue()
        var model = [UInt8]()
        var next: UInt8 = 0
        for _ in 0..<3000 {
            switch Int.random(in: 0..<4) {
            case 0:
                let added = (0..<Int.random(in: 0..<100)).map { _ in
                    next &+= 1
                    return next
                }
                let fits = queue.append(added, added.count)
                #expect(fits)
                model += added
            case 1:
                let removed = Int.random(in: 0..<120)
                queue.removeFirst(removed)
                model.removeFirst(min(removed, model.count))
            case 2:
                let fits = queue.reserve(50) && queue.room.count >= 50
                #expect(fits)
                for index in 0..<20 {
                    next &+= 1
                    queue.room[index] = next
                    model.append(next)
                    if index == 19 { queue.commit(20) }
                }
            default:
                if Int.random(in: 0..<50) == 0 {
                    queue.removeAll()
                    model = []
                    let owns = queue.ownsMemory
                    #expect(!owns)
                }
            }
            let content = Array(queue.bytes)
            #expect(content == model)
        }
        let tooMuch = queue.reserve(.max)
        let content = Array(queue.bytes)
        #expect(!tooMuch && content == model)
    }
}
