import BLIP
import CBLIP

@c @implementation
public func blip_listener_new(
    _ runtime: OpaquePointer!, _ options: OpaquePointer!, _ listener: UnsafeMutablePointer<OpaquePointer?>!
) -> blip_status {
    withRuntime(runtime) { runtime in
        withOptional(options) { (options: ListenerOptions?) in
            guard let listener else { return BLIP_ERROR_ARGUMENT }
            do throws(Failure) {
                return create(try Listener(runtime: runtime, options: options), listener)
            } catch {
                runtime.report(error, "listener")
                return error.status
            }
        }
    }
}

@c @implementation
public func blip_listener_retain(_ listener: OpaquePointer!) -> OpaquePointer! {
    HandleTable.retain(listener, as: Listener.self)
}

@c @implementation
public func blip_listener_release(_ listener: OpaquePointer!) { HandleTable.release(listener, as: Listener.self) }

@c @implementation
public func blip_listener_set_handler(
    _ listener: OpaquePointer!, _ profile: blip_slice, _ flags: UInt32, _ fn: blip_request_fn!,
    _ context: UnsafeMutableRawPointer!, _ release: (@convention(c) (UnsafeMutableRawPointer?) -> Void)!
) -> blip_status {
    let handler = RequestHandler(fn, context, release, flags: flags)
    return HandleTable.with(listener) { (listener: Listener) in
        guard flags & ~BLIP_HANDLER_STREAM == 0 else { return BLIP_ERROR_ARGUMENT }
        return profile.text { listener.setHandler(Text($0), handler) }
    }
}

@c @implementation
public func blip_listener_set_default_handler(
    _ listener: OpaquePointer!, _ flags: UInt32, _ fn: blip_request_fn!, _ context: UnsafeMutableRawPointer!,
    _ release: (@convention(c) (UnsafeMutableRawPointer?) -> Void)!
) -> blip_status {
    let handler = RequestHandler(fn, context, release, flags: flags)
    return HandleTable.with(listener) { (listener: Listener) in
        guard flags & ~BLIP_HANDLER_STREAM == 0 else { return BLIP_ERROR_ARGUMENT }
        return listener.setHandler(nil, handler)
    }
}

@c @implementation
public func blip_listener_set_accept_callback(
    _ listener: OpaquePointer!, _ fn: blip_accept_fn!, _ context: UnsafeMutableRawPointer!,
    _ release: (@convention(c) (UnsafeMutableRawPointer?) -> Void)!
) -> blip_status {
    let handler = Handler<blip_accept_fn>(fn, context, release)
    return HandleTable.with(listener) { (listener: Listener) in
        listener.setAccept(handler)
        return BLIP_OK
    }
}

@c @implementation
public func blip_listener_set_open_callback(
    _ listener: OpaquePointer!, _ fn: blip_open_fn!, _ context: UnsafeMutableRawPointer!,
    _ release: (@convention(c) (UnsafeMutableRawPointer?) -> Void)!
) -> blip_status {
    let handler = Handler<blip_open_fn>(fn, context, release)
    return HandleTable.with(listener) { (listener: Listener) in
        listener.setCallbacks { $0.open = handler }
        return BLIP_OK
    }
}

@c @implementation
public func blip_listener_set_close_callback(
    _ listener: OpaquePointer!, _ fn: blip_close_fn!, _ context: UnsafeMutableRawPointer!,
    _ release: (@convention(c) (UnsafeMutableRawPointer?) -> Void)!
) -> blip_status {
    let handler = Handler<blip_close_fn>(fn, context, release)
    return HandleTable.with(listener) { (listener: Listener) in
        listener.setCallbacks { $0.close = handler }
        return BLIP_OK
    }
}

@c @implementation
public func blip_listener_set_close_request_callback(
    _ listener: OpaquePointer!, _ fn: blip_close_request_fn!, _ context: UnsafeMutableRawPointer!,
    _ release: (@convention(c) (UnsafeMutableRawPointer?) -> Void)!
) -> blip_status {
    let handler = Handler<blip_close_request_fn>(fn, context, release)
    return HandleTable.with(listener) { (listener: Listener) in
        listener.setCallbacks { $0.closeRequest = handler }
        return BLIP_OK
    }
}

@c @implementation
public func blip_listener_set_stopped_callback(
    _ listener: OpaquePointer!, _ fn: blip_stopped_fn!, _ context: UnsafeMutableRawPointer!,
    _ release: (@convention(c) (UnsafeMutableRawPointer?) -> Void)!
) -> blip_status {
    let handler = Handler<blip_stopped_fn>(fn, context, release)
    return HandleTable.with(listener) { (listener: Listener) in
        listener.setStopped(handler)
        return BLIP_OK
    }
}

@c @implementation
public func blip_listener_start(_ listener: OpaquePointer!, _ address: blip_slice, _ port: UInt16) -> blip_status {
    HandleTable.with(listener) { (listener: Listener) in
        address.string { listener.start(.port(host: $0, port)) }
    }
}

@c @implementation
public func blip_listener_start_unix(_ listener: OpaquePointer!, _ path: blip_slice) -> blip_status {
    HandleTable.with(listener) { (listener: Listener) in
        path.string { $0.isEmpty ? BLIP_ERROR_ARGUMENT : listener.start(.unix($0)) }
    }
}

@c @implementation
public func blip_listener_port(_ listener: OpaquePointer!, _ port: UnsafeMutablePointer<UInt16>!) -> blip_status {
    HandleTable.with(listener) { (listener: Listener) in
        guard let number = listener.port else { return BLIP_ERROR_STATE }
        return put(number, to: port)
    }
}

@c @implementation
public func blip_listener_url(_ listener: OpaquePointer!, _ url: UnsafeMutablePointer<blip_slice>!) -> blip_status {
    HandleTable.with(listener) { (listener: Listener) in
        guard let text = listener.url else { return BLIP_ERROR_STATE }
        return put(text, to: url)
    }
}

@c @implementation
public func blip_listener_port_at(
    _ listener: OpaquePointer!, _ index: Int, _ port: UnsafeMutablePointer<UInt16>!
) -> blip_status {
    HandleTable.with(listener) { (listener: Listener) in
        guard let place = listener.place(index) else { return BLIP_ERROR_NOT_FOUND }
        return place.port == 0 ? BLIP_ERROR_STATE : put(place.port, to: port)
    }
}

@c @implementation
public func blip_listener_url_at(
    _ listener: OpaquePointer!, _ index: Int, _ url: UnsafeMutablePointer<blip_slice>!
) -> blip_status {
    HandleTable.with(listener) { (listener: Listener) in
        guard let place = listener.place(index) else { return BLIP_ERROR_NOT_FOUND }
        return put(place.url, to: url)
    }
}

@c @implementation
public func blip_listener_connection_count(
    _ listener: OpaquePointer!, _ count: UnsafeMutablePointer<Int>!
) -> blip_status {
    HandleTable.with(listener) { (listener: Listener) in put(listener.connectionCount, to: count) }
}

@c @implementation
public func blip_listener_stop(_ listener: OpaquePointer!, _ graceful: Bool, _ timeout: Int64) -> blip_status {
    HandleTable.with(listener) { (listener: Listener) in
        isTimeout(timeout) ? listener.stop(graceful: graceful, timeout: timeout) : BLIP_ERROR_ARGUMENT
    }
}

@c @implementation
public func blip_listener_wait_stopped(_ listener: OpaquePointer!, _ timeout: Int64) -> blip_status {
    HandleTable.with(listener) { (listener: Listener) in
        isTimeout(timeout) ? listener.waitStopped(timeout: timeout) : BLIP_ERROR_ARGUMENT
    }
}

@c @implementation
public func blip_listener_error(_ listener: OpaquePointer!, _ error: UnsafeMutablePointer<OpaquePointer?>!)
    -> blip_status
{
    HandleTable.with(listener) { (listener: Listener) in
        guard let handle = listener.error else { return BLIP_ERROR_NOT_FOUND }
        return put(handle, to: error)
    }
}

@c @implementation
public func blip_listener_set_trust_callback(
    _ listener: OpaquePointer!, _ fn: blip_trust_fn!, _ context: UnsafeMutableRawPointer!,
    _ release: (@convention(c) (UnsafeMutableRawPointer?) -> Void)!
) -> blip_status {
    let handler = Handler<blip_trust_fn>(fn, context, release)
    return HandleTable.with(listener) { (listener: Listener) in
        listener.setCallbacks { $0.trust = fn == nil && !listener.hasQueue ? nil : handler }
        return BLIP_OK
    }
}

@c @implementation
public func blip_listener_start_fd(_ listener: OpaquePointer!, _ fd: Int32) -> blip_status {
    HandleTable.with(listener) { (listener: Listener) in listener.start(.descriptors([fd])) }
}

@c @implementation
public func blip_listener_start_systemd(_ listener: OpaquePointer!, _ name: blip_slice) -> blip_status {
    HandleTable.with(listener) { (listener: Listener) in
        name.string { name in
            let descriptors = ServiceManager.take(name)
            guard !descriptors.isEmpty else { return BLIP_ERROR_NOT_FOUND }
            let status = listener.start(.descriptors(descriptors))
            if status != BLIP_OK { ServiceManager.giveBack(descriptors) }
            return status
        }
    }
}

@c @implementation
public func blip_listener_accept_fd(_ listener: OpaquePointer!, _ fd: Int32) -> blip_status {
    HandleTable.with(listener) { (listener: Listener) in listener.adopt(fd) }
}

@c @implementation
public func blip_listener_set_timeout_callback(
    _ listener: OpaquePointer!, _ fn: blip_timeout_fn!, _ context: UnsafeMutableRawPointer!,
    _ release: (@convention(c) (UnsafeMutableRawPointer?) -> Void)!
) -> blip_status {
    let handler = Handler<blip_timeout_fn>(fn, context, release)
    return HandleTable.with(listener) { (listener: Listener) in
        listener.setCallbacks { $0.timeout = fn == nil ? nil : handler }
        return BLIP_OK
    }
}
