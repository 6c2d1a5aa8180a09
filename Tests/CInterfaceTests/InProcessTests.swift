import BLIPCInterface
import CBLIP
import Foundation
import Synchronization
import Testing

/// The C functions called in the test's own process, so that sanitizers see both sides of the boundary.
@Suite("blip.h in process", .serialized)
struct InProcessTests {
    private func wait(_ condition: () -> Bool) -> Bool {
        for _ in 0..<2000 {
            if condition() { return true }
            usleep(5000)
        }
        return condition()
    }

    private func send(_ connection: OpaquePointer, _ counting: Counting, _ body: [UInt8]) -> blip_status {
        var request: OpaquePointer?
        guard blip_request_new(text("echo"), &request) == BLIP_OK else { return BLIP_ERROR_INTERNAL }
        body.withUnsafeBytes { bytes in
            _ = blip_message_set_body(request, blip_slice(data: bytes.baseAddress, size: bytes.count))
        }
        let status = blip_connection_send(
            connection, request, Counting.response, counting.context(), Counting.release)
        blip_message_release(request)
        return status
    }

    @Test("Requests from many threads complete exactly once, with two loops")
    func manyThreads() throws {
        let server = try Server(threads: 2)
        let connection = try server.connect()
        let counting = Counting()
        let threads = 4
        let each = 250
        // A handle may be used from any thread.
        nonisolated(unsafe) let shared = connection
        DispatchQueue.concurrentPerform(iterations: threads) { thread in
            for index in 0..<each {
                let status = send(shared, counting, [UInt8](repeating: UInt8(thread), count: index % 50 * 100))
                if status != BLIP_OK { counting.failures.add(1, ordering: .relaxed) }
            }
        }
        #expect(wait { counting.released.load(ordering: .relaxed) == threads * each })
        #expect(counting.calls.load(ordering: .relaxed) == threads * each)
        #expect(counting.failures.load(ordering: .relaxed) == 0)
        blip_connection_release(connection)
        server.end()
    }

    @Test("Closing while threads send completes everything that was accepted")
    func closeWhileSending() throws {
        let server = try Server(threads: 2)
        let connection = try server.connect()
        let counting = Counting()
        let accepted = Atomic<Int>(0)
        let attempted = Atomic<Int>(0)
        nonisolated(unsafe) let shared = connection
        DispatchQueue.concurrentPerform(iterations: 4) { thread in
            for index in 0..<200 {
                if thread == 0, index == 100 {
                    let status = blip_connection_close(shared, 1000, blip_slice())
                    #expect(status == BLIP_OK)
                }
                attempted.add(1, ordering: .relaxed)
                if send(shared, counting, [1, 2, 3]) == BLIP_OK { accepted.add(1, ordering: .relaxed) }
            }
        }
        #expect(wait { counting.released.load(ordering: .relaxed) == attempted.load(ordering: .relaxed) })
        #expect(counting.calls.load(ordering: .relaxed) == accepted.load(ordering: .relaxed))
        #expect(blip_connection_wait_closed(connection, 10_000) == BLIP_OK)
        blip_connection_release(connection)
        server.end()
    }

    @Test("A streamed response is read by another thread than the loop's")
    func streamedResponse() throws {
        let server = try Server()
        let connection = try server.connect()
        var request: OpaquePointer?
        #expect(blip_request_new(text("echo"), &request) == BLIP_OK)
        let body = [UInt8]((0..<2_000_000).map { UInt8(truncatingIfNeeded: $0 &* 7) })
        body.withUnsafeBytes { bytes in
            #expect(blip_message_set_body(request, blip_slice(data: bytes.baseAddress, size: bytes.count)) == BLIP_OK)
        }
        #expect(blip_message_set_streamed(request, true) == BLIP_OK)
        var response: OpaquePointer?
        #expect(blip_connection_request(connection, request, 20_000, &response) == BLIP_OK)
        var received: [UInt8] = []
        var buffer = [UInt8](repeating: 0, count: 30_000)
        var size = 0
        while blip_message_read_wait(response, &buffer, buffer.count, 20_000, &size) == BLIP_OK {
            received.append(contentsOf: buffer[..<size])
        }
        #expect(received == body)
        blip_message_release(response)
        blip_message_release(request)
        blip_connection_release(connection)
        server.end()
    }

    @Test("A queue is filled by the loop and emptied by a thread of the program")
    func queue() throws {
        let server = try Server()
        var queue: OpaquePointer?
        #expect(blip_queue_new(16, &queue) == BLIP_OK)
        let options = blip_connection_options_new()
        #expect(blip_connection_options_set_queue(options, queue) == BLIP_OK)
        var url = blip_slice()
        #expect(blip_listener_url(server.listener, &url) == BLIP_OK)
        var connection: OpaquePointer?
        #expect(blip_connection_new(server.runtime, url, options, &connection) == BLIP_OK)
        blip_connection_options_release(options)
        let opened = try #require(connection)
        #expect(blip_connection_wait_open(opened, 10_000) == BLIP_OK)
        let counting = Counting()
        for _ in 0..<300 { #expect(send(opened, counting, [1]) == BLIP_OK) }
        var handled = 0
        while handled < 300 {
            var count = 0
            #expect(blip_queue_dispatch(queue, 50, 10_000, &count) == BLIP_OK)
            guard count > 0 else { break }
            handled += count
        }
        #expect(counting.calls.load(ordering: .relaxed) == 300)
        blip_connection_release(opened)
        server.end()
        blip_queue_release(queue)
    }
}
