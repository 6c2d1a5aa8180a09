import Testing

@testable import BLIPProtocol

@Suite("Compression")
struct CompressionTests {
    /// Sends `messages` over one pair and returns the frames; every body must come out as it went in.
    @discardableResult
    private func pass(
        _ version: ProtocolVersion, _ bodies: [[UInt8]], level: Int32 = 6, frame: Int = 16384,
        flags: (Int) -> MessageFlags = { _ in .compressed }
    ) -> [[UInt8]] {
        var limits = Limits()
        limits.outgoingFrame = frame
        let a = Engine(version, limits: limits, level: level)
        let b = Engine(version)
        var frames: [[UInt8]] = []
        for (index, body) in bodies.enumerated() {
            a.send(Message(body: body, flags: flags(index).union(.noReply)))
            var received: Message?
            while a.hasOutput {
                let (bytes, cut) = a.next()
                guard cut.count > 0 else {
                    Issue.record("no frame")
                    return frames
                }
                frames.append(bytes)
                let event = b.receive(bytes)
                if let error = event.error { Issue.record("\(error.text), body \(body.count), frame \(frame)") }
                received = event.completed
                for answer in b.drain() { a.receive(answer) }
            }
            #expect(received?.bodyArray == body, "body \(body.count), frame \(frame)")
        }
        return frames
    }

    @Test(
        "Every small frame size takes compressible and incompressible bodies",
        arguments: [ProtocolVersion.v1, .v2, .v3])
    func frameSizes(version: ProtocolVersion) {
        for frame in 64..<200 {
            pass(version, [text(700), noise(700, UInt64(frame)), [], [7]], frame: frame)
        }
    }

    @Test("Incompressible data never makes a frame larger than the limit, at any level")
    func incompressible() {
        for level in Int32(1)...9 {
            for frame in [256, 1000, 4096, 16384, 32768, 65536] {
                // `next` checks the size of each frame.
                pass(.v3, [noise(100_000, UInt64(level))], level: level, frame: frame)
            }
        }
    }

    @Test("Bodies of all sizes around the border of a frame pass, and no compressed frame is empty")
    func borders() throws {
        let room = 2048 - 2 - 4
        let plain = room - room >> 10 - 32
        for size in (plain - 6)...(plain + 6) {
            for frame in pass(.v3, [noise(size, 1), noise(2 * size, 2), text(size)], frame: 2048) {
                let head = try #require(FrameHead(frame))
                if head.flags & 0x08 != 0 { #expect(head.payload > 5) }
            }
        }
    }

    @Test("Compressed and plain messages share a connection, and history helps")
    func mixed() {
        let bodies = (0..<40).map { text(500 + $0) }
        let frames = pass(.v3, bodies) { $0 % 3 == 0 ? [] : .compressed }
        #expect(frames.count == 40)
        #expect(frames[37].count < 60, "the same text again takes next to nothing")
    }

    @Test("Level 0 never sets the flag", arguments: [ProtocolVersion.v1, .v2, .v3])
    func levelZero(version: ProtocolVersion) throws {
        for frame in pass(version, [text(50_000)], level: 0) {
            if version == .v1 {
                #expect(frame[9] & 0x10 == 0)
            } else {
                #expect(try #require(FrameHead(frame)).flags & 0x08 == 0)
            }
        }
    }

    @Test("After idle memory was released both directions go on")
    func release() throws {
        let a = Engine(.v3)
        let b = Engine(.v3)
        for round in 0..<5 {
            for _ in 0..<3 {
                a.send(Message(body: text(3000), flags: .compressed))
                let request = try #require(b.receive(a.next().bytes).completed)
                #expect(request.bodyArray == text(3000))
                b.send(Message(.response, body: text(900), flags: .compressed, number: request.number))
                #expect(a.receive(b.next().bytes).completed?.bodyArray == text(900))
            }
            a.releaseIdleMemory()
            if round % 2 == 0 { b.releaseIdleMemory() }
        }
    }

    @Test("A source that ends after a wait ends a compressed message with a frame that is not marked as compressed")
    func emptyEnd() throws {
        let a = Engine(.v3)
        let b = Engine(.v3)
        let message = Message(flags: [.compressed, .noReply])
        message.sources = [ScriptedSource([.give(text(100)), .wait])]
        a.send(message)
        let first = a.next()
        #expect(try #require(FrameHead(first.bytes)).flags == 0x68)
        guard case .began = b.receive(first.bytes) else {
            Issue.record("not begun")
            return
        }
        #expect(a.hasOutput)
        let last = a.next()
        #expect(last.frame.isLast && last.bytes.count == 6)
        #expect(try #require(FrameHead(last.bytes)).flags == 0x20)
        #expect(b.receive(last.bytes).completed?.bodyArray == text(100))
        // The next compressed frame is not hurt.
        a.send(Message(body: text(100), flags: .compressed))
        #expect(b.receive(a.next().bytes).completed?.bodyArray == text(100))
    }

    /// A connection's compressed frames as zlib makes them, to feed an engine with what ours would never send.
    private final class Peer {
        var checksum: UInt32 = 0
        private let deflater = ZlibPeer(level: 9)

        func frame(_ number: UInt8, _ flags: UInt8, _ plain: [UInt8]) -> [UInt8] {
            let deflated = deflater.frame(plain).dropLast(4)
            plain.withUnsafeBytes { raw in
                if let base = raw.baseAddress { checksum = Checksum.update(checksum, base, raw.count) }
            }
            return [number, flags] + deflated + withUnsafeBytes(of: checksum.bigEndian) { Array($0) }
        }
    }

    @Test("A bomb is stopped by the message limit while it inflates, and its memory is never taken")
    func bomb() throws {
        var limits = Limits()
        limits.message = 1 << 20
        // Up to 16 MiB in a frame are what an honest peer may send: the message fails, the connection goes on.
        let engine = Engine(.v3, limits: limits)
        let peer = Peer()
        let failing = peer.frame(1, 0x08, [0] + [UInt8](repeating: 0, count: 8 << 20))
        #expect(failing.count < 16384)
        #expect(engine.receive(failing).isNone)
        #expect(engine.state.pointee.heldBytes == 0)
        let answer = try #require(engine.drain().first)
        #expect(String(decoding: answer, as: UTF8.self).contains("413"))
        #expect(engine.receive(peer.frame(2, 0x08, Array("\0ok".utf8))).completed?.bodyArray == Array("ok".utf8))
        // More than that is a bomb.
        let error = engine.receive(peer.frame(3, 0x08, [0] + [UInt8](repeating: 0, count: 40 << 20))).error
        #expect(error?.kind == .limit && error?.webSocketCode == 1009)
    }

    @Test("A message that is too large in many compressed frames fails alone")
    func manyFrames() throws {
        var limits = Limits()
        limits.message = 100_000
        let engine = Engine(.v3, limits: limits)
        let peer = Peer()
        for index in 0..<10 {
            let plain = (index == 0 ? [0] : []) + text(30_000)
            let event = engine.receive(peer.frame(1, index == 9 ? 0x08 : 0x48, plain))
            #expect(event.error == nil)
            if index == 0, case .began = event {
            } else if index == 3 {
                guard case .messageFailed(_, .tooLarge) = event else {
                    Issue.record("\(event)")
                    return
                }
            } else {
                #expect(event.isNone || index == 0)
            }
            #expect(engine.state.pointee.heldBytes <= 100_001)
        }
        #expect(engine.unfinishedIncoming == 0 && engine.state.pointee.heldBytes == 0)
        #expect(engine.receive(peer.frame(2, 0x08, Array("\0ok".utf8))).completed?.bodyArray == Array("ok".utf8))
    }

    @Test("Exactly the message limit is fine, one more byte is not", arguments: [ProtocolVersion.v1, .v2, .v3])
    func exactLimit(version: ProtocolVersion) throws {
        var limits = Limits()
        limits.message = 5000
        for flags in [MessageFlags(), .compressed] {
            let a = Engine(version)
            let b = Engine(version, limits: limits)
            a.send(Message(.request, [("Profile", "p")], body: text(5000), flags: flags))
            #expect(b.receive(a.next().bytes).completed?.bodyArray == text(5000))
            a.send(Message(.request, [("Profile", "p")], body: text(5001), flags: flags))
            #expect(b.receive(a.next().bytes).isNone)
            #expect(a.receive(try #require(b.drain().first)).completed?.get("Error-Code") == "413")
        }
    }

    @Test("A gzip body that is cut, followed by more, or missing does what it should")
    func badGzip() throws {
        let a = Engine(.v2)
        a.send(Message(body: text(300), flags: .compressed))
        let good = a.next().bytes
        func answer(_ frames: [[UInt8]]) -> (Message?, Message?) {
            let b = Engine(.v2)
            var complete: Message?
            for frame in frames {
                let event = b.receive(frame)
                #expect(event.error == nil)
                complete = event.completed ?? complete
            }
            let peer = Engine(.v2)
            peer.send(Message())
            _ = peer.drain()
            return (complete, b.drain().first.flatMap { peer.receive($0).completed })
        }
        #expect(answer([good]).0?.bodyArray == text(300))
        for cut in 4..<good.count {
            let (complete, error) = answer([Array(good.prefix(cut))])
            #expect(complete == nil && error?.get("Error-Code") == "400", "cut at \(cut)")
        }
        #expect(answer([good + [0]]).1?.get("Error-Code") == "400")
        // No byte of a body that claims to be compressed: an empty body.
        #expect(answer([[1, 8, 0]]).0?.bodyArray == [])
        // Byte by byte.
        var frames = good.dropFirst(2).map { [1, 0x48, $0] as [UInt8] }
        frames.append([1, 0x08])
        #expect(answer(frames).0 == nil || answer(frames).0?.bodyArray == text(300))
    }

    @Test("Compressed data split at every byte is inflated the same", arguments: [ProtocolVersion.v2])
    func gzipSplits(version: ProtocolVersion) throws {
        let a = Engine(version)
        a.send(Message(.request, [("Profile", "p")], body: text(300), flags: [.compressed, .noReply]))
        let whole = Array(a.next().bytes.dropFirst(2))
        for split in 0...whole.count {
            let b = Engine(version)
            let first = b.receive([1, 0x68] + whole.prefix(split))
            #expect(first.error == nil && first.completed == nil)
            #expect(
                b.receive([1, 0x28] + whole.dropFirst(split)).completed?.bodyArray == text(300), "split at \(split)")
        }
    }
}
