import BLIP
import BLIPProtocol
import CBLIP

@c @implementation
public func blip_request_new(_ profile: blip_slice, _ request: UnsafeMutablePointer<OpaquePointer?>!) -> blip_status {
    profile.text { profile in
        guard let request else { return BLIP_ERROR_ARGUMENT }
        _ = Runtime.forkGuard
        let message = LoopContext.newMessage()
        let status = profile.isEmpty ? BLIP_OK : message.setProfile(profile)
        return status == BLIP_OK ? create(message, request) : status
    }
}

@c @implementation
public func blip_message_retain(_ message: OpaquePointer!) -> OpaquePointer! {
    HandleTable.retain(message, as: BLIPMessage.self)
}

@c @implementation
public func blip_message_release(_ message: OpaquePointer!) { HandleTable.release(message, as: BLIPMessage.self) }

@c @implementation
public func blip_message_type(_ message: OpaquePointer!, _ type: UnsafeMutablePointer<Int32>!) -> blip_status {
    HandleTable.with(message) { (message: BLIPMessage) in put(Int32(message.kind.rawValue), to: type) }
}

@c @implementation
public func blip_message_number(_ message: OpaquePointer!, _ number: UnsafeMutablePointer<UInt64>!) -> blip_status {
    HandleTable.with(message) { (message: BLIPMessage) in put(message.currentNumber, to: number) }
}

@c @implementation
public func blip_message_is_mine(_ message: OpaquePointer!, _ mine: UnsafeMutablePointer<Bool>!) -> blip_status {
    HandleTable.with(message) { (message: BLIPMessage) in put(!message.isIncoming, to: mine) }
}

@c @implementation
public func blip_message_is_mutable(_ message: OpaquePointer!, _ isMutable: UnsafeMutablePointer<Bool>!) -> blip_status
{
    HandleTable.with(message) { (message: BLIPMessage) in put(!message.isFixed, to: isMutable) }
}

@c @implementation
public func blip_message_is_complete(_ message: OpaquePointer!, _ complete: UnsafeMutablePointer<Bool>!) -> blip_status
{
    HandleTable.with(message) { (message: BLIPMessage) in put(message.isWholeNow, to: complete) }
}

@c @implementation
public func blip_message_is_sent(_ message: OpaquePointer!, _ sent: UnsafeMutablePointer<Bool>!) -> blip_status {
    HandleTable.with(message) { (message: BLIPMessage) in put(message.isSentNow, to: sent) }
}

@c @implementation
public func blip_message_connection(
    _ message: OpaquePointer!, _ connection: UnsafeMutablePointer<OpaquePointer?>!
) -> blip_status {
    HandleTable.with(message) { (message: BLIPMessage) in
        guard let owner = message.place else { return BLIP_ERROR_NOT_FOUND }
        guard let connection else { return BLIP_ERROR_ARGUMENT }
        guard let handle = owner.lendHandle() else { return BLIP_ERROR_NOT_FOUND }
        connection.pointee = handle
        return BLIP_OK
    }
}

@c @implementation
public func blip_message_flags(_ message: OpaquePointer!, _ flags: UnsafeMutablePointer<UInt32>!) -> blip_status {
    HandleTable.with(message) { (message: BLIPMessage) in put(message.publicFlags, to: flags) }
}

@c @implementation
public func blip_message_set_flags(_ message: OpaquePointer!, _ flags: UInt32) -> blip_status {
    HandleTable.with(message) { (message: BLIPMessage) in message.setFlags(flags) }
}

@c @implementation
public func blip_message_set_compressed(_ message: OpaquePointer!, _ compressed: Bool) -> blip_status {
    HandleTable.with(message) { (message: BLIPMessage) in message.setFlag(BLIP_FLAG_COMPRESSED, compressed) }
}

@c @implementation
public func blip_message_set_urgent(_ message: OpaquePointer!, _ urgent: Bool) -> blip_status {
    HandleTable.with(message) { (message: BLIPMessage) in message.setFlag(BLIP_FLAG_URGENT, urgent) }
}

@c @implementation
public func blip_message_set_no_reply(_ message: OpaquePointer!, _ noReply: Bool) -> blip_status {
    HandleTable.with(message) { (message: BLIPMessage) in message.setFlag(BLIP_FLAG_NO_REPLY, noReply) }
}

@c @implementation
public func blip_message_profile(_ message: OpaquePointer!, _ profile: UnsafeMutablePointer<blip_slice>!) -> blip_status
{
    HandleTable.with(message) { (message: BLIPMessage) in put(message.value(of: "Profile"), to: profile) }
}

@c @implementation
public func blip_message_content_type(_ message: OpaquePointer!, _ type: UnsafeMutablePointer<blip_slice>!)
    -> blip_status
{
    HandleTable.with(message) { (message: BLIPMessage) in put(message.value(of: "Content-Type"), to: type) }
}

@c @implementation
public func blip_message_set_profile(_ message: OpaquePointer!, _ profile: blip_slice) -> blip_status {
    HandleTable.with(message) { (message: BLIPMessage) in profile.text { message.setProfile($0) } }
}

@c @implementation
public func blip_message_set_content_type(_ message: OpaquePointer!, _ type: blip_slice) -> blip_status {
    HandleTable.with(message) { (message: BLIPMessage) in type.text { message.setContentType($0) } }
}

@c @implementation
public func blip_message_property(
    _ message: OpaquePointer!, _ key: blip_slice, _ value: UnsafeMutablePointer<blip_slice>!
) -> blip_status {
    HandleTable.with(message) { (message: BLIPMessage) in
        key.text { key in
            guard let found = message.property(key) else { return BLIP_ERROR_NOT_FOUND }
            return put(blip_slice(found), to: value)
        }
    }
}

@c @implementation
public func blip_message_set_property(_ message: OpaquePointer!, _ key: blip_slice, _ value: blip_slice) -> blip_status
{
    HandleTable.with(message) { (message: BLIPMessage) in
        key.text { key in value.text { message.set(key, $0) } }
    }
}

@c @implementation
public func blip_message_remove_property(_ message: OpaquePointer!, _ key: blip_slice) -> blip_status {
    HandleTable.with(message) { (message: BLIPMessage) in key.text { message.remove($0) } }
}

@c @implementation
public func blip_message_property_count(_ message: OpaquePointer!, _ count: UnsafeMutablePointer<Int>!) -> blip_status {
    HandleTable.with(message) { (message: BLIPMessage) in put(message.propertyCount, to: count) }
}

@c @implementation
public func blip_message_property_at(
    _ message: OpaquePointer!, _ index: Int, _ key: UnsafeMutablePointer<blip_slice>!,
    _ value: UnsafeMutablePointer<blip_slice>!
) -> blip_status {
    HandleTable.with(message) { (message: BLIPMessage) in
        guard let key, let value else { return BLIP_ERROR_ARGUMENT }
        guard let (foundKey, foundValue) = message.property(at: index) else { return BLIP_ERROR_NOT_FOUND }
        key.pointee = blip_slice(foundKey)
        value.pointee = blip_slice(foundValue)
        return BLIP_OK
    }
}

@c @implementation
public func blip_message_properties(_ message: OpaquePointer!, _ encoded: UnsafeMutablePointer<blip_slice>!)
    -> blip_status
{
    HandleTable.with(message) { (message: BLIPMessage) in put(message.encoded, to: encoded) }
}

@c @implementation
public func blip_message_set_properties(_ message: OpaquePointer!, _ encoded: blip_slice) -> blip_status {
    HandleTable.with(message) { (message: BLIPMessage) in message.setEncoded(encoded) }
}

@c @implementation
public func blip_message_set_body(_ message: OpaquePointer!, _ body: blip_slice) -> blip_status {
    HandleTable.with(message) { (message: BLIPMessage) in message.setBody(body) }
}

@c @implementation
public func blip_message_append_body(_ message: OpaquePointer!, _ bytes: blip_slice) -> blip_status {
    HandleTable.with(message) { (message: BLIPMessage) in message.appendBody(bytes) }
}

@c @implementation
public func blip_message_append_body_borrowed(
    _ message: OpaquePointer!, _ bytes: blip_slice, _ release: (@convention(c) (UnsafeMutableRawPointer?) -> Void)!,
    _ context: UnsafeMutableRawPointer!
) -> blip_status {
    let holder = Handler<Never>(nil, context, release)
    return HandleTable.with(message) { (message: BLIPMessage) in message.appendBorrowed(bytes, holder) }
}

@c @implementation
public func blip_message_append_body_file(
    _ message: OpaquePointer!, _ fd: Int32, _ offset: UInt64, _ length: UInt64, _ closes: Bool
) -> blip_status {
    HandleTable.with(message) { (message: BLIPMessage) in
        message.appendFile(fd, offset: offset, length: length, closes: closes)
    }
}

@c @implementation
public func blip_message_append_body_pulled(
    _ message: OpaquePointer!, _ fn: blip_body_fn!, _ context: UnsafeMutableRawPointer!,
    _ release: (@convention(c) (UnsafeMutableRawPointer?) -> Void)!
) -> blip_status {
    let handler = Handler<blip_body_fn>(fn, context, release)
    return HandleTable.with(message) { (message: BLIPMessage) in message.appendStream(handler) }
}

@c @implementation
public func blip_message_resume_body(_ message: OpaquePointer!) -> blip_status {
    HandleTable.with(message) { (message: BLIPMessage) in message.resumeBody() }
}

@c @implementation
public func blip_message_append_body_pushed(_ message: OpaquePointer!) -> blip_status {
    HandleTable.with(message) { (message: BLIPMessage) in message.appendPushed() }
}

@c @implementation
public func blip_message_push_body(_ message: OpaquePointer!, _ bytes: blip_slice, _ last: Bool) -> blip_status {
    HandleTable.with(message) { (message: BLIPMessage) in message.pushBody(bytes, isLast: last) }
}

@c @implementation
public func blip_message_set_text(_ message: OpaquePointer!, _ text: blip_slice) -> blip_status {
    HandleTable.with(message) { (message: BLIPMessage) in message.setText(text) }
}

@c @implementation
public func blip_message_set_json(_ message: OpaquePointer!, _ json: blip_slice) -> blip_status {
    HandleTable.with(message) { (message: BLIPMessage) in message.setJSON(json) }
}

@c @implementation
public func blip_message_body(_ message: OpaquePointer!, _ body: UnsafeMutablePointer<blip_slice>!) -> blip_status {
    HandleTable.with(message) { (message: BLIPMessage) in message.wholeBody(body) }
}

@c @implementation
public func blip_message_body_size(_ message: OpaquePointer!, _ size: UnsafeMutablePointer<UInt64>!) -> blip_status {
    HandleTable.with(message) { (message: BLIPMessage) in put(message.bodySize, to: size) }
}

@c @implementation
public func blip_message_set_streamed(_ message: OpaquePointer!, _ streamed: Bool) -> blip_status {
    HandleTable.with(message) { (message: BLIPMessage) in message.setStreamed(streamed) }
}

@c @implementation
public func blip_message_set_data_callback(
    _ message: OpaquePointer!, _ fn: blip_data_fn!, _ context: UnsafeMutableRawPointer!,
    _ release: (@convention(c) (UnsafeMutableRawPointer?) -> Void)!
) -> blip_status {
    let handler = Handler<blip_data_fn>(fn, context, release)
    return HandleTable.with(message) { (message: BLIPMessage) in message.setData(handler) }
}

@c @implementation
public func blip_message_pause_reading(_ message: OpaquePointer!) -> blip_status {
    HandleTable.with(message) { (message: BLIPMessage) in message.pauseReading() }
}

@c @implementation
public func blip_message_resume_reading(_ message: OpaquePointer!) -> blip_status {
    HandleTable.with(message) { (message: BLIPMessage) in message.resumeReading() }
}

@c @implementation
public func blip_message_read(
    _ message: OpaquePointer!, _ buffer: UnsafeMutableRawPointer!, _ capacity: Int, _ size: UnsafeMutablePointer<Int>!
) -> blip_status {
    HandleTable.with(message) { (message: BLIPMessage) in message.read(buffer, capacity, size) }
}

@c @implementation
public func blip_message_read_wait(
    _ message: OpaquePointer!, _ buffer: UnsafeMutableRawPointer!, _ capacity: Int, _ timeout: Int64,
    _ size: UnsafeMutablePointer<Int>!
) -> blip_status {
    HandleTable.with(message) { (message: BLIPMessage) in
        isTimeout(timeout) ? message.readWaiting(buffer, capacity, timeout, size) : BLIP_ERROR_ARGUMENT
    }
}

@c @implementation
public func blip_message_set_sent_callback(
    _ message: OpaquePointer!, _ fn: blip_sent_fn!, _ context: UnsafeMutableRawPointer!,
    _ release: (@convention(c) (UnsafeMutableRawPointer?) -> Void)!
) -> blip_status {
    let handler = Handler<blip_sent_fn>(fn, context, release)
    return HandleTable.with(message) { (message: BLIPMessage) in message.setSent(handler) }
}

@c @implementation
public func blip_message_set_progress_callback(
    _ message: OpaquePointer!, _ fn: blip_progress_fn!, _ context: UnsafeMutableRawPointer!,
    _ release: (@convention(c) (UnsafeMutableRawPointer?) -> Void)!
) -> blip_status {
    let handler = Handler<blip_progress_fn>(fn, context, release)
    return HandleTable.with(message) { (message: BLIPMessage) in message.setProgress(handler) }
}

@c @implementation
public func blip_message_bytes_sent(_ message: OpaquePointer!, _ bytes: UnsafeMutablePointer<UInt64>!) -> blip_status {
    HandleTable.with(message) { (message: BLIPMessage) in put(message.bytesSent, to: bytes) }
}

@c @implementation
public func blip_message_wait_sent(_ message: OpaquePointer!, _ timeout: Int64) -> blip_status {
    HandleTable.with(message) { (message: BLIPMessage) in
        isTimeout(timeout) ? message.waitSent(timeout: timeout) : BLIP_ERROR_ARGUMENT
    }
}

@c @implementation
public func blip_message_set_timeout(_ message: OpaquePointer!, _ milliseconds: Int64) -> blip_status {
    HandleTable.with(message) { (message: BLIPMessage) in message.setTimeout(milliseconds) }
}

@c @implementation
public func blip_message_cancel(_ message: OpaquePointer!) -> blip_status {
    HandleTable.with(message) { (message: BLIPMessage) in message.cancel() }
}

@c @implementation
public func blip_message_set_user_data(
    _ message: OpaquePointer!, _ data: UnsafeMutableRawPointer!,
    _ release: (@convention(c) (UnsafeMutableRawPointer?) -> Void)!
) -> blip_status {
    let holder = Handler<Never>(nil, data, release)
    return HandleTable.with(message) { (message: BLIPMessage) in
        message.setUserData(holder)
        return BLIP_OK
    }
}

@c @implementation
public func blip_message_user_data(_ message: OpaquePointer!, _ data: UnsafeMutablePointer<UnsafeMutableRawPointer?>!)
    -> blip_status
{
    HandleTable.with(message) { (message: BLIPMessage) in put(message.userData, to: data) }
}

@c @implementation
public func blip_message_describe(
    _ message: OpaquePointer!, _ properties: Bool, _ text: UnsafeMutablePointer<blip_slice>!
) -> blip_status {
    HandleTable.with(message) { (message: BLIPMessage) in put(message.describe(properties: properties), to: text) }
}

@c @implementation
public func blip_message_copy(_ message: OpaquePointer!, _ request: UnsafeMutablePointer<OpaquePointer?>!)
    -> blip_status
{
    HandleTable.with(message) { (message: BLIPMessage) in
        guard let request else { return BLIP_ERROR_ARGUMENT }
        var copy: BLIPMessage?
        let status = message.makeCopy(&copy)
        guard status == BLIP_OK, let copy else { return status }
        return create(copy, request)
    }
}
