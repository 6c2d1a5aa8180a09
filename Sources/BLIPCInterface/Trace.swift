import BLIP
import CBLIP

@c @implementation
public func blip_message_set_trace_context(
    _ message: OpaquePointer!, _ traceparent: blip_slice, _ tracestate: blip_slice
) -> blip_status {
    HandleTable.with(message) { (message: BLIPMessage) in
        traceparent.text { parent in tracestate.text { message.setTrace(parent, $0) } }
    }
}

@c @implementation
public func blip_message_trace_context(
    _ message: OpaquePointer!, _ traceparent: UnsafeMutablePointer<blip_slice>!,
    _ tracestate: UnsafeMutablePointer<blip_slice>!
) -> blip_status {
    HandleTable.with(message) { (message: BLIPMessage) in
        guard let traceparent, let tracestate else { return BLIP_ERROR_ARGUMENT }
        guard let (parent, state) = message.trace else { return BLIP_ERROR_NOT_FOUND }
        traceparent.pointee = blip_slice(parent)
        tracestate.pointee = blip_slice(state)
        return BLIP_OK
    }
}

@c @implementation
public func blip_message_continue_trace(_ message: OpaquePointer!, _ of: OpaquePointer!) -> blip_status {
    HandleTable.with(message) { (message: BLIPMessage) in
        HandleTable.with(of) { (other: BLIPMessage) in message.continueTrace(of: other) }
    }
}

@c @implementation
public func blip_message_begin_trace(_ message: OpaquePointer!, _ sampled: Bool) -> blip_status {
    HandleTable.with(message) { (message: BLIPMessage) in message.beginTrace(isSampled: sampled) }
}

@c @implementation
public func blip_connection_set_frame_callback(
    _ connection: OpaquePointer!, _ fn: blip_frame_fn!, _ context: UnsafeMutableRawPointer!,
    _ release: (@convention(c) (UnsafeMutableRawPointer?) -> Void)!
) -> blip_status {
    let handler = Handler<blip_frame_fn>(fn, context, release)
    return HandleTable.with(connection) { (connection: Connection) in
        connection.setCallbacks { $0.trace = handler.function == nil ? nil : handler }
    }
}

@c @implementation
public func blip_listener_set_frame_callback(
    _ listener: OpaquePointer!, _ fn: blip_frame_fn!, _ context: UnsafeMutableRawPointer!,
    _ release: (@convention(c) (UnsafeMutableRawPointer?) -> Void)!
) -> blip_status {
    let handler = Handler<blip_frame_fn>(fn, context, release)
    return HandleTable.with(listener) { (listener: Listener) in
        listener.setCallbacks { $0.trace = handler.function == nil ? nil : handler }
        return BLIP_OK
    }
}
