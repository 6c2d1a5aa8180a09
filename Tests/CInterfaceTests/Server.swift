import BLIPCInterface
import CBLIP
import Testing

/// A listener on loopback with an echo handler, on a runtime of its own.
final class Server: @unchecked Sendable {
    let runtime: OpaquePointer
    let listener: OpaquePointer

    init(threads: UInt32 = 1) throws {
        let options = try #require(blip_runtime_options_new())
        #expect(blip_runtime_options_set_threads(options, threads) == BLIP_OK)
        var runtime: OpaquePointer?
        #expect(blip_runtime_new(options, &runtime) == BLIP_OK)
        blip_runtime_options_release(options)
        self.runtime = try #require(runtime)
        var listener: OpaquePointer?
        #expect(blip_listener_new(runtime, nil, &listener) == BLIP_OK)
        self.listener = try #require(listener)
        let echo: blip_request_fn = { _, request, _ in
            var body = blip_slice()
            _ = blip_message_body(request, &body)
            return blip_message_respond_data(request, body, blip_slice())
        }
        #expect(blip_listener_set_handler(listener, text("echo"), 0, echo, nil, nil) == BLIP_OK)
        #expect(blip_listener_start(listener, text("127.0.0.1"), 0) == BLIP_OK)
    }

    /// A connection to it on the runtime's own loops.
    func connect() throws -> OpaquePointer {
        var url = blip_slice()
        #expect(blip_listener_url(listener, &url) == BLIP_OK)
        var connection: OpaquePointer?
        #expect(blip_connection_new(runtime, url, nil, &connection) == BLIP_OK)
        let opened = try #require(connection)
        #expect(blip_connection_wait_open(opened, 10_000) == BLIP_OK)
        return opened
    }

    func end() {
        #expect(blip_runtime_stop(runtime, 10_000) == BLIP_OK)
        blip_listener_release(listener)
        blip_runtime_release(runtime)
    }
}
