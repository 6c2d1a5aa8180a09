import BLIP
import CBLIP

@c @implementation
public func blip_event_kind(_ event: OpaquePointer!, _ kind: UnsafeMutablePointer<Int32>!) -> blip_status {
    HandleTable.with(event) { (event: Event) in put(event.kind, to: kind) }
}

@c @implementation
public func blip_event_status(_ event: OpaquePointer!) -> blip_status {
    HandleTable.with(event) { (event: Event) in event.status }
}

@c @implementation
public func blip_event_value(_ event: OpaquePointer!, _ value: UnsafeMutablePointer<Int64>!) -> blip_status {
    HandleTable.with(event) { (event: Event) in put(event.value, to: value) }
}

@c @implementation
public func blip_event_context(
    _ event: OpaquePointer!, _ context: UnsafeMutablePointer<UnsafeMutableRawPointer?>!
) -> blip_status {
    HandleTable.with(event) { (event: Event) in put(event.context, to: context) }
}

/// A handle that an event lends, or NULL.
private func lent(_ event: OpaquePointer?, _ get: (Event) -> OpaquePointer?) -> OpaquePointer? {
    var result: OpaquePointer?
    _ = HandleTable.with(event) { (event: Event) in
        result = get(event)
        return BLIP_OK
    }
    return result
}

@c @implementation
public func blip_event_connection(_ event: OpaquePointer!) -> OpaquePointer! { lent(event) { $0.connectionHandle } }

@c @implementation
public func blip_event_listener(_ event: OpaquePointer!) -> OpaquePointer! { lent(event) { $0.listenerHandle } }

@c @implementation
public func blip_event_message(_ event: OpaquePointer!) -> OpaquePointer! { lent(event) { $0.messageHandle } }

@c @implementation
public func blip_event_request(_ event: OpaquePointer!) -> OpaquePointer! { lent(event) { $0.requestHandle } }

@c @implementation
public func blip_event_release(_ event: OpaquePointer!) { HandleTable.release(event, as: Event.self) }

@c @implementation
public func blip_event_trust(_ event: OpaquePointer!) -> OpaquePointer! { lent(event) { $0.trustHandle } }

@c @implementation
public func blip_event_challenge(_ event: OpaquePointer!) -> OpaquePointer! { lent(event) { $0.challengeHandle } }

@c @implementation
public func blip_event_log_line(
    _ event: OpaquePointer!, _ domain: UnsafeMutablePointer<blip_slice>!, _ text: UnsafeMutablePointer<blip_slice>!
) -> blip_status {
    HandleTable.with(event) { (event: Event) in
        guard let domain, let text else { return BLIP_ERROR_ARGUMENT }
        guard let line = event.logLine else { return BLIP_ERROR_NOT_FOUND }
        domain.pointee = line.domain
        text.pointee = line.text
        return BLIP_OK
    }
}
