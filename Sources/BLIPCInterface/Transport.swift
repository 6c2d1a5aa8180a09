import BLIP
import CBLIP

@c @implementation
public func blip_transport_new(
    _ fn: blip_transport_send_fn!, _ context: UnsafeMutableRawPointer!,
    _ release: (@convention(c) (UnsafeMutableRawPointer?) -> Void)!,
    _ transport: UnsafeMutablePointer<OpaquePointer?>!
) -> blip_status {
    _ = Runtime.forkGuard
    let handler = Handler<blip_transport_send_fn>(fn, context, release)
    guard fn != nil, let transport else { return BLIP_ERROR_ARGUMENT }
    return create(FrameTransport(handler), transport)
}

@c @implementation
public func blip_transport_retain(_ transport: OpaquePointer!) -> OpaquePointer! {
    HandleTable.retain(transport, as: FrameTransport.self)
}

@c @implementation
public func blip_transport_release(_ transport: OpaquePointer!) {
    HandleTable.release(transport, as: FrameTransport.self)
}

@c @implementation
public func blip_transport_set_close_callback(
    _ transport: OpaquePointer!, _ fn: blip_transport_close_fn!, _ context: UnsafeMutableRawPointer!,
    _ release: (@convention(c) (UnsafeMutableRawPointer?) -> Void)!
) -> blip_status {
    let handler = Handler<blip_transport_close_fn>(fn, context, release)
    return HandleTable.with(transport) { (transport: FrameTransport) in transport.setClose(handler) }
}

@c @implementation
public func blip_transport_set_resume_callback(
    _ transport: OpaquePointer!, _ fn: blip_transport_resume_fn!, _ context: UnsafeMutableRawPointer!,
    _ release: (@convention(c) (UnsafeMutableRawPointer?) -> Void)!
) -> blip_status {
    let handler = Handler<blip_transport_resume_fn>(fn, context, release)
    return HandleTable.with(transport) { (transport: FrameTransport) in transport.setResume(handler) }
}

@c @implementation
public func blip_transport_did_open(_ transport: OpaquePointer!) -> blip_status {
    HandleTable.with(transport) { (transport: FrameTransport) in transport.didOpen() }
}

@c @implementation
public func blip_transport_did_receive(_ transport: OpaquePointer!, _ frame: blip_slice) -> blip_status {
    HandleTable.with(transport) { (transport: FrameTransport) in
        guard let bytes = frame.bytes else { return BLIP_ERROR_ARGUMENT }
        return transport.didReceive(bytes)
    }
}

@c @implementation
public func blip_transport_did_drain(_ transport: OpaquePointer!) -> blip_status {
    HandleTable.with(transport) { (transport: FrameTransport) in transport.didDrain() }
}

@c @implementation
public func blip_transport_did_close(_ transport: OpaquePointer!, _ status: blip_status) -> blip_status {
    HandleTable.with(transport) { (transport: FrameTransport) in transport.didClose(status) }
}

@c @implementation
public func blip_connection_from_transport(
    _ runtime: OpaquePointer!, _ transport: OpaquePointer!, _ name: blip_slice, _ options: OpaquePointer!,
    _ connection: UnsafeMutablePointer<OpaquePointer?>!
) -> blip_status {
    withRuntime(runtime) { runtime in
        HandleTable.with(transport) { (object: FrameTransport) in
            withOptional(options) { (options: ConnectionOptions?) in
                name.string { name in
                    guard let connection else { return BLIP_ERROR_ARGUMENT }
                    do throws(Failure) {
                        connection.pointee = try Connection.over(
                            object, transport, runtime: runtime, subprotocol: name, options: options)
                        return BLIP_OK
                    } catch {
                        runtime.report(error, "connection")
                        return error.status
                    }
                }
            }
        }
    }
}

@c @implementation
public func blip_connection_pair(
    _ first: OpaquePointer!, _ second: OpaquePointer!, _ options: OpaquePointer!,
    _ a: UnsafeMutablePointer<OpaquePointer?>!, _ b: UnsafeMutablePointer<OpaquePointer?>!
) -> blip_status {
    withRuntime(first) { first in
        withRuntime(second) { second in
            withOptional(options) { (options: ConnectionOptions?) in
                guard let a, let b else { return BLIP_ERROR_ARGUMENT }
                do throws(Failure) {
                    (a.pointee, b.pointee) = try Connection.pair(first, second, options: options)
                    return BLIP_OK
                } catch {
                    first.report(error, "connection")
                    return error.status
                }
            }
        }
    }
}

@c @implementation
public func blip_listener_connect(
    _ listener: OpaquePointer!, _ runtime: OpaquePointer!, _ options: OpaquePointer!,
    _ connection: UnsafeMutablePointer<OpaquePointer?>!
) -> blip_status {
    withRuntime(runtime) { runtime in
        HandleTable.with(listener) { (listener: Listener) in
            withOptional(options) { (options: ConnectionOptions?) in
                guard let connection else { return BLIP_ERROR_ARGUMENT }
                do throws(Failure) {
                    connection.pointee = try Connection.inProcess(listener, runtime, options: options)
                    return BLIP_OK
                } catch {
                    runtime.report(error, "connection")
                    return error.status
                }
            }
        }
    }
}
