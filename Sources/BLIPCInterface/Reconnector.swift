import BLIP
import CBLIP

@c @implementation
public func blip_reconnector_new(
    _ runtime: OpaquePointer!, _ url: blip_slice, _ options: OpaquePointer!,
    _ reconnector: UnsafeMutablePointer<OpaquePointer?>!
) -> blip_status {
    withRuntime(runtime) { runtime in
        withOptional(options) { (options: ConnectionOptions?) in
            url.string { url in
                guard let reconnector else { return BLIP_ERROR_ARGUMENT }
                do throws(Failure) {
                    let new = try Reconnector(runtime: runtime, url: url, options: options)
                    guard let handle = new.lendHandle() else { return BLIP_ERROR_RESOURCES }
                    reconnector.pointee = handle
                    return BLIP_OK
                } catch {
                    runtime.report(error, "reconnector")
                    return error.status
                }
            }
        }
    }
}

@c @implementation
public func blip_reconnector_retain(_ reconnector: OpaquePointer!) -> OpaquePointer! {
    HandleTable.retain(reconnector, as: Reconnector.self)
}

@c @implementation
public func blip_reconnector_release(_ reconnector: OpaquePointer!) {
    HandleTable.release(reconnector, as: Reconnector.self)
}

@c @implementation
public func blip_reconnector_set_backoff(
    _ reconnector: OpaquePointer!, _ initial: Int64, _ maximum: Int64, _ growth: UInt32
) -> blip_status {
    HandleTable.with(reconnector) { (reconnector: Reconnector) in
        guard initial >= 0, maximum >= initial, (100...1000).contains(growth) else { return BLIP_ERROR_ARGUMENT }
        return reconnector.setPolicy {
            $0.initialDelay = initial
            $0.maximumDelay = maximum
            $0.growth = growth
        }
    }
}

@c @implementation
public func blip_reconnector_set_attempts(_ reconnector: OpaquePointer!, _ attempts: UInt32) -> blip_status {
    HandleTable.with(reconnector) { (reconnector: Reconnector) in
        reconnector.setPolicy { $0.attempts = attempts }
    }
}

@c @implementation
public func blip_reconnector_set_stable_time(_ reconnector: OpaquePointer!, _ milliseconds: Int64) -> blip_status {
    HandleTable.with(reconnector) { (reconnector: Reconnector) in
        guard isTimeout(milliseconds) else { return BLIP_ERROR_ARGUMENT }
        return reconnector.setPolicy { $0.stableTime = milliseconds }
    }
}

@c @implementation
public func blip_reconnector_set_carry_over(_ reconnector: OpaquePointer!, _ carryOver: Bool) -> blip_status {
    HandleTable.with(reconnector) { (reconnector: Reconnector) in
        reconnector.setPolicy { $0.carriesOver = carryOver }
    }
}

@c @implementation
public func blip_reconnector_set_persistent(_ reconnector: OpaquePointer!, _ persistent: Bool) -> blip_status {
    HandleTable.with(reconnector) { (reconnector: Reconnector) in
        reconnector.setPolicy { $0.isPersistent = persistent }
    }
}

@c @implementation
public func blip_reconnector_set_state_callback(
    _ reconnector: OpaquePointer!, _ fn: blip_reconnector_state_fn!, _ context: UnsafeMutableRawPointer!,
    _ release: (@convention(c) (UnsafeMutableRawPointer?) -> Void)!
) -> blip_status {
    let handler = Handler<blip_reconnector_state_fn>(fn, context, release)
    return HandleTable.with(reconnector) { (reconnector: Reconnector) in reconnector.setCallback(handler) }
}

@c @implementation
public func blip_reconnector_add_module(_ reconnector: OpaquePointer!, _ module: OpaquePointer!) -> blip_status {
    HandleTable.with(reconnector) { (reconnector: Reconnector) in
        HandleTable.with(module) { (module: Module) in reconnector.add(module) }
    }
}

@c @implementation
public func blip_reconnector_remove_module(_ reconnector: OpaquePointer!, _ module: OpaquePointer!) -> blip_status {
    HandleTable.with(reconnector) { (reconnector: Reconnector) in
        HandleTable.with(module) { (module: Module) in reconnector.remove(module) }
    }
}

@c @implementation
public func blip_reconnector_start(_ reconnector: OpaquePointer!) -> blip_status {
    HandleTable.with(reconnector) { (reconnector: Reconnector) in reconnector.start() }
}

@c @implementation
public func blip_reconnector_stop(_ reconnector: OpaquePointer!, _ timeout: Int64) -> blip_status {
    HandleTable.with(reconnector) { (reconnector: Reconnector) in
        guard isTimeout(timeout) else { return BLIP_ERROR_ARGUMENT }
        reconnector.stop(timeout: timeout)
        return BLIP_OK
    }
}

@c @implementation
public func blip_reconnector_wake(_ reconnector: OpaquePointer!) -> blip_status {
    HandleTable.with(reconnector) { (reconnector: Reconnector) in reconnector.wake() }
}

@c @implementation
public func blip_reconnector_wait_open(_ reconnector: OpaquePointer!, _ timeout: Int64) -> blip_status {
    HandleTable.with(reconnector) { (reconnector: Reconnector) in
        isTimeout(timeout) ? reconnector.waitOpen(timeout: timeout) : BLIP_ERROR_ARGUMENT
    }
}

@c @implementation
public func blip_reconnector_wait_stopped(_ reconnector: OpaquePointer!, _ timeout: Int64) -> blip_status {
    HandleTable.with(reconnector) { (reconnector: Reconnector) in
        isTimeout(timeout) ? reconnector.waitStopped(timeout: timeout) : BLIP_ERROR_ARGUMENT
    }
}

@c @implementation
public func blip_reconnector_state(_ reconnector: OpaquePointer!, _ state: UnsafeMutablePointer<Int32>!) -> blip_status
{
    HandleTable.with(reconnector) { (reconnector: Reconnector) in put(reconnector.state, to: state) }
}

@c @implementation
public func blip_reconnector_delay(
    _ reconnector: OpaquePointer!, _ milliseconds: UnsafeMutablePointer<Int64>!
) -> blip_status {
    HandleTable.with(reconnector) { (reconnector: Reconnector) in
        guard let milliseconds else { return BLIP_ERROR_ARGUMENT }
        guard let delay = reconnector.delay else { return BLIP_ERROR_NOT_FOUND }
        milliseconds.pointee = delay
        return BLIP_OK
    }
}

@c @implementation
public func blip_reconnector_error(
    _ reconnector: OpaquePointer!, _ error: UnsafeMutablePointer<OpaquePointer?>!
) -> blip_status {
    HandleTable.with(reconnector) { (reconnector: Reconnector) in
        guard let error else { return BLIP_ERROR_ARGUMENT }
        guard let handle = reconnector.error else { return BLIP_ERROR_NOT_FOUND }
        error.pointee = handle
        return BLIP_OK
    }
}

@c @implementation
public func blip_reconnector_connection(
    _ reconnector: OpaquePointer!, _ connection: UnsafeMutablePointer<OpaquePointer?>!
) -> blip_status {
    HandleTable.with(reconnector) { (reconnector: Reconnector) in
        guard let connection else { return BLIP_ERROR_ARGUMENT }
        guard let handle = reconnector.lendConnection() else { return BLIP_ERROR_NOT_FOUND }
        connection.pointee = handle
        return BLIP_OK
    }
}

@c @implementation
public func blip_reconnector_send(
    _ reconnector: OpaquePointer!, _ request: OpaquePointer!, _ fn: blip_response_fn!,
    _ context: UnsafeMutableRawPointer!, _ release: (@convention(c) (UnsafeMutableRawPointer?) -> Void)!
) -> blip_status {
    let status = HandleTable.with(reconnector) { (reconnector: Reconnector) in
        HandleTable.with(request) { (request: BLIPMessage) in reconnector.send(request, fn, context, release) }
    }
    if status != BLIP_OK { release?(context) }
    return status
}

@c @implementation
public func blip_reconnector_request(
    _ reconnector: OpaquePointer!, _ request: OpaquePointer!, _ timeout: Int64,
    _ response: UnsafeMutablePointer<OpaquePointer?>!
) -> blip_status {
    HandleTable.with(reconnector) { (reconnector: Reconnector) in
        HandleTable.with(request) { (request: BLIPMessage) in
            guard let response, isTimeout(timeout) else { return BLIP_ERROR_ARGUMENT }
            let (status, message) = reconnector.request(request, timeout: timeout)
            guard status == BLIP_OK, let message else {
                if status == BLIP_OK { response.pointee = nil }
                return status
            }
            return create(message, response)
        }
    }
}
