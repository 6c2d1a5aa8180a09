import BLIP
import BLIPProtocol
import CBLIP

@c @implementation
public func blip_response_new(_ request: OpaquePointer!, _ response: UnsafeMutablePointer<OpaquePointer?>!)
    -> blip_status
{
    HandleTable.with(request) { (request: BLIPMessage) in
        guard let response else { return BLIP_ERROR_ARGUMENT }
        guard let connection = request.connection, request.isIncoming, request.kind == .request else {
            return BLIP_ERROR_ARGUMENT
        }
        guard request.wantsReply else { return BLIP_ERROR_NO_REPLY }
        return create(connection.makeResponse(to: request), response)
    }
}

@c @implementation
public func blip_response_set_error(
    _ response: OpaquePointer!, _ domain: blip_slice, _ code: Int32, _ message: blip_slice
) -> blip_status {
    HandleTable.with(response) { (response: BLIPMessage) in
        domain.text { domain in message.text { response.setError(domain, code, $0) } }
    }
}

@c @implementation
public func blip_message_respond(_ request: OpaquePointer!, _ response: OpaquePointer!) -> blip_status {
    HandleTable.with(request) { (request: BLIPMessage) in
        HandleTable.with(response) { (response: BLIPMessage) in request.respond(with: response) }
    }
}

@c @implementation
public func blip_message_respond_data(_ request: OpaquePointer!, _ body: blip_slice, _ type: blip_slice) -> blip_status
{
    HandleTable.with(request) { (request: BLIPMessage) in request.respondData(body, type) }
}

@c @implementation
public func blip_message_respond_text(_ request: OpaquePointer!, _ text: blip_slice) -> blip_status {
    HandleTable.with(request) { (request: BLIPMessage) in request.respondText(text) }
}

@c @implementation
public func blip_message_respond_json(_ request: OpaquePointer!, _ json: blip_slice) -> blip_status {
    HandleTable.with(request) { (request: BLIPMessage) in request.respondJSON(json) }
}

@c @implementation
public func blip_message_respond_empty(_ request: OpaquePointer!) -> blip_status {
    HandleTable.with(request) { (request: BLIPMessage) in request.respondEmpty() }
}

@c @implementation
public func blip_message_respond_error(
    _ request: OpaquePointer!, _ domain: blip_slice, _ code: Int32, _ text: blip_slice
) -> blip_status {
    HandleTable.with(request) { (request: BLIPMessage) in
        domain.string { domain in text.string { request.respondError(domain, code, $0) } }
    }
}

@c @implementation
public func blip_message_defer(_ request: OpaquePointer!) -> blip_status {
    HandleTable.with(request) { (request: BLIPMessage) in request.deferReply() }
}

@c @implementation
public func blip_message_is_responded(_ request: OpaquePointer!, _ responded: UnsafeMutablePointer<Bool>!)
    -> blip_status
{
    HandleTable.with(request) { (request: BLIPMessage) in put(request.isResponded, to: responded) }
}

@c @implementation
public func blip_message_error(_ response: OpaquePointer!, _ error: UnsafeMutablePointer<OpaquePointer?>!)
    -> blip_status
{
    HandleTable.with(response) { (response: BLIPMessage) in
        guard let handle = response.errorHandle else { return BLIP_ERROR_NOT_FOUND }
        return put(handle, to: error)
    }
}
