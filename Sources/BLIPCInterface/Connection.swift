import BLIP
import CBLIP

/// The runtime behind a handle; NULL stands for the shared one.
func withRuntime(_ handle: OpaquePointer?, _ body: (Runtime) -> blip_status) -> blip_status {
    _ = Runtime.forkGuard
    guard let handle else {
        guard let (runtime, _) = Runtime.shared() else { return BLIP_ERROR_RESOURCES }
        return body(runtime)
    }
    return HandleTable.with(handle) { (runtime: Runtime) in body(runtime) }
}

/// The object behind a handle that may be NULL.
func withOptional<T: SlotOwner>(_ handle: OpaquePointer?, _ body: (T?) -> blip_status) -> blip_status {
    guard let handle else { return body(nil) }
    return HandleTable.with(handle) { (object: T) in body(object) }
}

@c @implementation
public func blip_url_check(_ url: blip_slice, _ error: UnsafeMutablePointer<OpaquePointer?>!) -> blip_status {
    url.string { text in
        _ = Runtime.forkGuard
        guard let failure = Connection.failure(of: text) else { return BLIP_OK }
        guard let error else { return failure.status }
        let status = create(ErrorRecord(failure), error)
        return status == BLIP_OK ? failure.status : status
    }
}

@c @implementation
public func blip_connection_new(
    _ runtime: OpaquePointer!, _ url: blip_slice, _ options: OpaquePointer!,
    _ connection: UnsafeMutablePointer<OpaquePointer?>!
) -> blip_status {
    withRuntime(runtime) { runtime in
        withOptional(options) { (options: ConnectionOptions?) in
            url.string { url in
                guard let connection else { return BLIP_ERROR_ARGUMENT }
                do throws(Failure) {
                    let new = try Connection(runtime: runtime, url: url, options: options)
                    // The runtime may have been stopped, and the connection ended, meanwhile.
                    guard let handle = new.lendHandle() else {
                        return runtime.isStopped ? BLIP_ERROR_STOPPED : BLIP_ERROR_RESOURCES
                    }
                    connection.pointee = handle
                    return BLIP_OK
                } catch {
                    runtime.report(error, "connection")
                    return error.status
                }
            }
        }
    }
}

@c @implementation
public func blip_connection_retain(_ connection: OpaquePointer!) -> OpaquePointer! {
    HandleTable.retain(connection, as: Connection.self)
}

@c @implementation
public func blip_connection_release(_ connection: OpaquePointer!) {
    HandleTable.release(connection, as: Connection.self)
}

@c @implementation
public func blip_connection_set_handler(
    _ connection: OpaquePointer!, _ profile: blip_slice, _ flags: UInt32, _ fn: blip_request_fn!,
    _ context: UnsafeMutableRawPointer!, _ release: (@convention(c) (UnsafeMutableRawPointer?) -> Void)!
) -> blip_status {
    let handler = RequestHandler(fn, context, release, flags: flags)
    return HandleTable.with(connection) { (connection: Connection) in
        guard flags & ~BLIP_HANDLER_STREAM == 0 else { return BLIP_ERROR_ARGUMENT }
        return profile.text { connection.setHandler(Text($0), handler) }
    }
}

@c @implementation
public func blip_connection_set_default_handler(
    _ connection: OpaquePointer!, _ flags: UInt32, _ fn: blip_request_fn!, _ context: UnsafeMutableRawPointer!,
    _ release: (@convention(c) (UnsafeMutableRawPointer?) -> Void)!
) -> blip_status {
    let handler = RequestHandler(fn, context, release, flags: flags)
    return HandleTable.with(connection) { (connection: Connection) in
        guard flags & ~BLIP_HANDLER_STREAM == 0 else { return BLIP_ERROR_ARGUMENT }
        return connection.setHandler(nil, handler)
    }
}

@c @implementation
public func blip_connection_remove_handler(_ connection: OpaquePointer!, _ profile: blip_slice) -> blip_status {
    HandleTable.with(connection) { (connection: Connection) in
        profile.text { connection.setHandler(Text($0), nil) }
    }
}

@c @implementation
public func blip_connection_set_open_callback(
    _ connection: OpaquePointer!, _ fn: blip_open_fn!, _ context: UnsafeMutableRawPointer!,
    _ release: (@convention(c) (UnsafeMutableRawPointer?) -> Void)!
) -> blip_status {
    let handler = Handler<blip_open_fn>(fn, context, release)
    return HandleTable.with(connection) { (connection: Connection) in
        connection.setCallbacks { $0.open = handler }
    }
}

@c @implementation
public func blip_connection_set_close_callback(
    _ connection: OpaquePointer!, _ fn: blip_close_fn!, _ context: UnsafeMutableRawPointer!,
    _ release: (@convention(c) (UnsafeMutableRawPointer?) -> Void)!
) -> blip_status {
    let handler = Handler<blip_close_fn>(fn, context, release)
    return HandleTable.with(connection) { (connection: Connection) in
        connection.setCallbacks { $0.close = handler }
    }
}

@c @implementation
public func blip_connection_set_state_callback(
    _ connection: OpaquePointer!, _ fn: blip_state_fn!, _ context: UnsafeMutableRawPointer!,
    _ release: (@convention(c) (UnsafeMutableRawPointer?) -> Void)!
) -> blip_status {
    let handler = Handler<blip_state_fn>(fn, context, release)
    return HandleTable.with(connection) { (connection: Connection) in
        connection.setCallbacks { $0.state = handler }
    }
}

@c @implementation
public func blip_connection_set_close_request_callback(
    _ connection: OpaquePointer!, _ fn: blip_close_request_fn!, _ context: UnsafeMutableRawPointer!,
    _ release: (@convention(c) (UnsafeMutableRawPointer?) -> Void)!
) -> blip_status {
    let handler = Handler<blip_close_request_fn>(fn, context, release)
    return HandleTable.with(connection) { (connection: Connection) in
        connection.setCallbacks { $0.closeRequest = handler }
    }
}

@c @implementation
public func blip_connection_answer_close_request(_ connection: OpaquePointer!, _ accept: Bool) -> blip_status {
    HandleTable.with(connection) { (connection: Connection) in connection.answerCloseRequest(accept) }
}

@c @implementation
public func blip_connection_say_bye(
    _ connection: OpaquePointer!, _ fn: blip_bye_fn!, _ context: UnsafeMutableRawPointer!,
    _ release: (@convention(c) (UnsafeMutableRawPointer?) -> Void)!
) -> blip_status {
    let handler = Handler<blip_bye_fn>(fn, context, release)
    return HandleTable.with(connection) { (connection: Connection) in connection.sayBye(handler) }
}

@c @implementation
public func blip_connection_set_challenge_callback(
    _ connection: OpaquePointer!, _ fn: blip_challenge_fn!, _ context: UnsafeMutableRawPointer!,
    _ release: (@convention(c) (UnsafeMutableRawPointer?) -> Void)!
) -> blip_status {
    let handler = Handler<blip_challenge_fn>(fn, context, release)
    return HandleTable.with(connection) { (connection: Connection) in
        connection.setCallbacks { $0.challenge = handler }
    }
}

@c @implementation
public func blip_connection_connect(_ connection: OpaquePointer!) -> blip_status {
    HandleTable.with(connection) { (connection: Connection) in connection.connect() }
}

@c @implementation
public func blip_connection_wait_open(_ connection: OpaquePointer!, _ timeout: Int64) -> blip_status {
    HandleTable.with(connection) { (connection: Connection) in
        isTimeout(timeout) ? connection.waitOpen(timeout: timeout) : BLIP_ERROR_ARGUMENT
    }
}

@c @implementation
public func blip_connection_close(_ connection: OpaquePointer!, _ code: UInt16, _ reason: blip_slice) -> blip_status {
    HandleTable.with(connection) { (connection: Connection) in
        reason.text { $0.count > 123 ? BLIP_ERROR_ARGUMENT : connection.close(code: code, reason: [UInt8]($0)) }
    }
}

@c @implementation
public func blip_connection_close_gracefully(_ connection: OpaquePointer!, _ timeout: Int64) -> blip_status {
    HandleTable.with(connection) { (connection: Connection) in
        isTimeout(timeout) ? connection.closeGracefully(timeout: timeout) : BLIP_ERROR_ARGUMENT
    }
}

@c @implementation
public func blip_connection_wait_closed(_ connection: OpaquePointer!, _ timeout: Int64) -> blip_status {
    HandleTable.with(connection) { (connection: Connection) in
        isTimeout(timeout) ? connection.waitClosed(timeout: timeout) : BLIP_ERROR_ARGUMENT
    }
}

@c @implementation
public func blip_connection_state(_ connection: OpaquePointer!, _ state: UnsafeMutablePointer<Int32>!) -> blip_status {
    HandleTable.with(connection) { (connection: Connection) in put(connection.state, to: state) }
}

@c @implementation
public func blip_connection_is_active(_ connection: OpaquePointer!, _ active: UnsafeMutablePointer<Bool>!)
    -> blip_status
{
    HandleTable.with(connection) { (connection: Connection) in put(connection.isActive, to: active) }
}

@c @implementation
public func blip_connection_error(
    _ connection: OpaquePointer!, _ error: UnsafeMutablePointer<OpaquePointer?>!
) -> blip_status {
    HandleTable.with(connection) { (connection: Connection) in
        guard let handle = connection.error else { return BLIP_ERROR_NOT_FOUND }
        return put(handle, to: error)
    }
}

@c @implementation
public func blip_connection_close_code(_ connection: OpaquePointer!, _ code: UnsafeMutablePointer<Int32>!)
    -> blip_status
{
    HandleTable.with(connection) { (connection: Connection) in put(connection.closeCode, to: code) }
}

@c @implementation
public func blip_connection_protocol_version(
    _ connection: OpaquePointer!, _ version: UnsafeMutablePointer<Int32>!
) -> blip_status {
    HandleTable.with(connection) { (connection: Connection) in put(connection.protocolVersion, to: version) }
}

@c @implementation
public func blip_connection_is_incoming(_ connection: OpaquePointer!, _ incoming: UnsafeMutablePointer<Bool>!)
    -> blip_status
{
    HandleTable.with(connection) { (connection: Connection) in put(connection.isAccepted, to: incoming) }
}

@c @implementation
public func blip_connection_is_secure(_ connection: OpaquePointer!, _ secure: UnsafeMutablePointer<Bool>!)
    -> blip_status
{
    HandleTable.with(connection) { (connection: Connection) in put(connection.isSecure, to: secure) }
}

@c @implementation
public func blip_connection_url(
    _ connection: OpaquePointer!, _ url: UnsafeMutablePointer<blip_slice>!
) -> blip_status {
    HandleTable.with(connection) { (connection: Connection) in put(connection.urlText, to: url) }
}

@c @implementation
public func blip_connection_subprotocol(
    _ connection: OpaquePointer!, _ subprotocol: UnsafeMutablePointer<blip_slice>!
) -> blip_status {
    HandleTable.with(connection) { (connection: Connection) in put(connection.subprotocolText, to: subprotocol) }
}

@c @implementation
public func blip_connection_local_address(
    _ connection: OpaquePointer!, _ local_address: UnsafeMutablePointer<blip_slice>!
) -> blip_status {
    HandleTable.with(connection) { (connection: Connection) in put(connection.localAddressText, to: local_address) }
}

@c @implementation
public func blip_connection_remote_address(
    _ connection: OpaquePointer!, _ remote_address: UnsafeMutablePointer<blip_slice>!
) -> blip_status {
    HandleTable.with(connection) { (connection: Connection) in put(connection.remoteAddressText, to: remote_address) }
}

@c @implementation
public func blip_connection_tls_version(
    _ connection: OpaquePointer!, _ tls_version: UnsafeMutablePointer<blip_slice>!
) -> blip_status {
    HandleTable.with(connection) { (connection: Connection) in put(connection.tlsVersionText, to: tls_version) }
}

@c @implementation
public func blip_connection_tls_cipher(
    _ connection: OpaquePointer!, _ tls_cipher: UnsafeMutablePointer<blip_slice>!
) -> blip_status {
    HandleTable.with(connection) { (connection: Connection) in put(connection.tlsCipherText, to: tls_cipher) }
}

@c @implementation
public func blip_connection_peer_certificate(
    _ connection: OpaquePointer!, _ peer_certificate: UnsafeMutablePointer<blip_slice>!
) -> blip_status {
    HandleTable.with(connection) { (connection: Connection) in put(connection.peerCertificate, to: peer_certificate) }
}

@c @implementation
public func blip_connection_request_path(
    _ connection: OpaquePointer!, _ request_path: UnsafeMutablePointer<blip_slice>!
) -> blip_status {
    HandleTable.with(connection) { (connection: Connection) in put(connection.requestPath, to: request_path) }
}

@c @implementation
public func blip_connection_http_header(
    _ connection: OpaquePointer!, _ name: blip_slice, _ value: UnsafeMutablePointer<blip_slice>!
) -> blip_status {
    HandleTable.with(connection) { (connection: Connection) in
        name.string { name in
            guard let found = connection.header(name) else { return BLIP_ERROR_NOT_FOUND }
            return put(blip_slice(found), to: value)
        }
    }
}

@c @implementation
public func blip_connection_set_user_data(
    _ connection: OpaquePointer!, _ data: UnsafeMutableRawPointer!,
    _ release: (@convention(c) (UnsafeMutableRawPointer?) -> Void)!
) -> blip_status {
    let holder = Handler<Never>(nil, data, release)
    return HandleTable.with(connection) { (connection: Connection) in
        connection.setUserData(holder)
        return BLIP_OK
    }
}

@c @implementation
public func blip_connection_user_data(
    _ connection: OpaquePointer!, _ data: UnsafeMutablePointer<UnsafeMutableRawPointer?>!
) -> blip_status {
    HandleTable.with(connection) { (connection: Connection) in put(connection.userData, to: data) }
}

@c @implementation
public func blip_connection_backlog(_ connection: OpaquePointer!, _ bytes: UnsafeMutablePointer<UInt64>!) -> blip_status
{
    HandleTable.with(connection) { (connection: Connection) in put(connection.backlogBytes, to: bytes) }
}

@c @implementation
public func blip_connection_ping(
    _ connection: OpaquePointer!, _ timeout: Int64, _ fn: blip_pong_fn!, _ context: UnsafeMutableRawPointer!,
    _ release: (@convention(c) (UnsafeMutableRawPointer?) -> Void)!
) -> blip_status {
    let handler = Handler<blip_pong_fn>(fn, context, release)
    return HandleTable.with(connection) { (connection: Connection) in
        isTimeout(timeout) ? connection.ping(timeout: timeout, handler) : BLIP_ERROR_ARGUMENT
    }
}

@c @implementation
public func blip_connection_set_tls_server_name(_ connection: OpaquePointer!, _ name: blip_slice) -> blip_status {
    HandleTable.with(connection) { (connection: Connection) in name.string { connection.setServerName($0) } }
}

@c @implementation
public func blip_connection_perform(
    _ connection: OpaquePointer!, _ fn: blip_perform_fn!, _ context: UnsafeMutableRawPointer!,
    _ release: (@convention(c) (UnsafeMutableRawPointer?) -> Void)!
) -> blip_status {
    let handler = Handler<blip_perform_fn>(fn, context, release)
    return HandleTable.with(connection) { (connection: Connection) in connection.perform(handler) }
}

@c @implementation
public func blip_connection_counter_values(
    _ connection: OpaquePointer!, _ which: UnsafePointer<Int32>!, _ values: UnsafeMutablePointer<UInt64>!, _ count: Int
) -> blip_status {
    HandleTable.with(connection) { (connection: Connection) in
        guard count >= 0, count == 0 || (which != nil && values != nil) else { return BLIP_ERROR_ARGUMENT }
        guard count > 0, let which, let values else { return BLIP_OK }
        let counters = connection.readCounters()
        guard (0..<count).allSatisfy({ counters[which[$0]] != nil }) else { return BLIP_ERROR_ARGUMENT }
        for index in 0..<count { values[index] = counters[which[index]] ?? 0 }
        return BLIP_OK
    }
}

@c @implementation
public func blip_connection_send(
    _ connection: OpaquePointer!, _ request: OpaquePointer!, _ fn: blip_response_fn!,
    _ context: UnsafeMutableRawPointer!, _ release: (@convention(c) (UnsafeMutableRawPointer?) -> Void)!
) -> blip_status {
    let status = HandleTable.with(connection) { (connection: Connection) in
        HandleTable.with(request) { (request: BLIPMessage) in connection.send(request, fn, context, release) }
    }
    if status != BLIP_OK { release?(context) }
    return status
}

@c @implementation
public func blip_connection_send_data(
    _ connection: OpaquePointer!, _ profile: blip_slice, _ body: blip_slice, _ flags: UInt32, _ fn: blip_response_fn!,
    _ context: UnsafeMutableRawPointer!, _ release: (@convention(c) (UnsafeMutableRawPointer?) -> Void)!
) -> blip_status {
    let status = HandleTable.with(connection) { (connection: Connection) in
        profile.text { profile in
            let request = LoopContext.newMessage()
            var status = profile.isEmpty ? BLIP_OK : request.setProfile(profile)
            if status == BLIP_OK { status = request.setBody(body) }
            if status == BLIP_OK { status = request.setFlags(flags) }
            return status == BLIP_OK ? connection.send(request, fn, context, release) : status
        }
    }
    if status != BLIP_OK { release?(context) }
    return status
}

@c @implementation
public func blip_connection_set_backlog_callback(
    _ connection: OpaquePointer!, _ low: UInt64, _ high: UInt64, _ fn: blip_backlog_fn!,
    _ context: UnsafeMutableRawPointer!, _ release: (@convention(c) (UnsafeMutableRawPointer?) -> Void)!
) -> blip_status {
    let handler = Handler<blip_backlog_fn>(fn, context, release)
    return HandleTable.with(connection) { (connection: Connection) in
        connection.setBacklog(low: low, high: high, handler)
    }
}

@c @implementation
public func blip_connection_request(
    _ connection: OpaquePointer!, _ request: OpaquePointer!, _ timeout: Int64,
    _ response: UnsafeMutablePointer<OpaquePointer?>!
) -> blip_status {
    HandleTable.with(connection) { (connection: Connection) in
        HandleTable.with(request) { (request: BLIPMessage) in
            guard let response, isTimeout(timeout) else { return BLIP_ERROR_ARGUMENT }
            let (status, message) = connection.request(request, timeout: timeout)
            guard status == BLIP_OK, let message else {
                if status == BLIP_OK { response.pointee = nil }
                return status
            }
            return create(message, response)
        }
    }
}

@c @implementation
public func blip_connection_from_fd(
    _ runtime: OpaquePointer!, _ fd: Int32, _ url: blip_slice, _ options: OpaquePointer!,
    _ connection: UnsafeMutablePointer<OpaquePointer?>!
) -> blip_status {
    withRuntime(runtime) { runtime in
        withOptional(options) { (options: ConnectionOptions?) in
            url.string { url in
                guard let connection else { return BLIP_ERROR_ARGUMENT }
                do throws(Failure) {
                    let new = try Connection(runtime: runtime, descriptor: fd, url: url, options: options)
                    // The runtime may have been stopped, and the connection ended, meanwhile.
                    guard let handle = new.lendHandle() else { return BLIP_ERROR_STOPPED }
                    connection.pointee = handle
                    return BLIP_OK
                } catch {
                    runtime.report(error, "connection")
                    return error.status
                }
            }
        }
    }
}

@c @implementation
public func blip_connection_set_trust_callback(
    _ connection: OpaquePointer!, _ fn: blip_trust_fn!, _ context: UnsafeMutableRawPointer!,
    _ release: (@convention(c) (UnsafeMutableRawPointer?) -> Void)!
) -> blip_status {
    let handler = Handler<blip_trust_fn>(fn, context, release)
    return HandleTable.with(connection) { (connection: Connection) in
        connection.setCallbacks { $0.trust = fn == nil && !connection.hasQueue ? nil : handler }
    }
}

@c @implementation
public func blip_connection_tls_alpn(
    _ connection: OpaquePointer!, _ name: UnsafeMutablePointer<blip_slice>!
) -> blip_status {
    HandleTable.with(connection) { (connection: Connection) in put(connection.tlsProtocolText, to: name) }
}

@c @implementation
public func blip_connection_tls_is_resumed(
    _ connection: OpaquePointer!, _ resumed: UnsafeMutablePointer<Bool>!
) -> blip_status {
    HandleTable.with(connection) { (connection: Connection) in put(connection.isTLSResumed, to: resumed) }
}

@c @implementation
public func blip_connection_local_sockaddr(
    _ connection: OpaquePointer!, _ address: UnsafeMutablePointer<blip_slice>!
) -> blip_status {
    HandleTable.with(connection) { (connection: Connection) in put(connection.localSystemAddress, to: address) }
}

@c @implementation
public func blip_connection_remote_sockaddr(
    _ connection: OpaquePointer!, _ address: UnsafeMutablePointer<blip_slice>!
) -> blip_status {
    HandleTable.with(connection) { (connection: Connection) in put(connection.remoteSystemAddress, to: address) }
}

@c @implementation
public func blip_connection_is_ipv4(
    _ connection: OpaquePointer!, _ ipv4: UnsafeMutablePointer<Bool>!
) -> blip_status {
    HandleTable.with(connection) { (connection: Connection) in put(connection.isIPv4, to: ipv4) }
}

@c @implementation
public func blip_connection_is_ipv6(
    _ connection: OpaquePointer!, _ ipv6: UnsafeMutablePointer<Bool>!
) -> blip_status {
    HandleTable.with(connection) { (connection: Connection) in put(connection.isIPv6, to: ipv6) }
}

@c @implementation
public func blip_connection_perform_fd(
    _ connection: OpaquePointer!, _ fn: blip_fd_fn!, _ context: UnsafeMutableRawPointer!,
    _ release: (@convention(c) (UnsafeMutableRawPointer?) -> Void)!
) -> blip_status {
    let handler = Handler<blip_fd_fn>(fn, context, release)
    return HandleTable.with(connection) { (connection: Connection) in
        fn == nil ? BLIP_ERROR_ARGUMENT : connection.withDescriptor(handler)
    }
}

@c @implementation
public func blip_connection_set_timeout_callback(
    _ connection: OpaquePointer!, _ fn: blip_timeout_fn!, _ context: UnsafeMutableRawPointer!,
    _ release: (@convention(c) (UnsafeMutableRawPointer?) -> Void)!
) -> blip_status {
    let handler = Handler<blip_timeout_fn>(fn, context, release)
    return HandleTable.with(connection) { (connection: Connection) in
        connection.setCallbacks { $0.timeout = fn == nil ? nil : handler }
    }
}
