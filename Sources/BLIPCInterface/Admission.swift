import BLIP
import CBLIP

@c @implementation
public func blip_connection_user(_ connection: OpaquePointer!, _ user: UnsafeMutablePointer<blip_slice>!) -> blip_status
{
    HandleTable.with(connection) { (connection: Connection) in put(connection.userText, to: user) }
}

@c @implementation
public func blip_connection_defer_accept(_ connection: OpaquePointer!) -> blip_status {
    HandleTable.with(connection) { (connection: Connection) in connection.deferAccept() }
}

@c @implementation
public func blip_connection_accept(_ connection: OpaquePointer!, _ user: blip_slice) -> blip_status {
    HandleTable.with(connection) { (connection: Connection) in user.string { connection.accept(user: $0) } }
}

@c @implementation
public func blip_connection_reject(_ connection: OpaquePointer!, _ status: Int32, _ text: blip_slice) -> blip_status {
    HandleTable.with(connection) { (connection: Connection) in
        text.string { connection.reject(status: status, text: $0) }
    }
}

@c @implementation
public func blip_connection_add_response_header(
    _ connection: OpaquePointer!, _ name: blip_slice, _ value: blip_slice
) -> blip_status {
    HandleTable.with(connection) { (connection: Connection) in
        name.string { name in value.string { connection.addResponseHeader(name, $0) } }
    }
}

@c @implementation
public func blip_connection_credential_scheme(
    _ connection: OpaquePointer!, _ scheme: UnsafeMutablePointer<blip_slice>!
) -> blip_status {
    HandleTable.with(connection) { (connection: Connection) in put(connection.credentialScheme, to: scheme) }
}

@c @implementation
public func blip_connection_credential_user(
    _ connection: OpaquePointer!, _ user: UnsafeMutablePointer<blip_slice>!
) -> blip_status {
    HandleTable.with(connection) { (connection: Connection) in put(connection.credentialUser, to: user) }
}

@c @implementation
public func blip_connection_credential_secret(
    _ connection: OpaquePointer!, _ secret: UnsafeMutablePointer<blip_slice>!
) -> blip_status {
    HandleTable.with(connection) { (connection: Connection) in put(connection.credentialSecret, to: secret) }
}

@c @implementation
public func blip_connection_credential_parameter(
    _ connection: OpaquePointer!, _ name: blip_slice, _ value: UnsafeMutablePointer<blip_slice>!
) -> blip_status {
    HandleTable.with(connection) { (connection: Connection) in
        name.string { put(connection.credentialParameter($0), to: value) }
    }
}

@c @implementation
public func blip_connection_check_password(
    _ connection: OpaquePointer!, _ password: blip_slice, _ matches: UnsafeMutablePointer<Bool>!
) -> blip_status {
    HandleTable.with(connection) { (connection: Connection) in
        password.text { password in
            guard matches != nil else { return BLIP_ERROR_ARGUMENT }
            guard let result = connection.checkPassword(password) else { return BLIP_ERROR_NOT_FOUND }
            return put(result, to: matches)
        }
    }
}

@c @implementation
public func blip_listener_options_set_realm(_ options: OpaquePointer!, _ realm: blip_slice) -> blip_status {
    HandleTable.with(options) { (options: ListenerOptions) in realm.string { options.setRealm($0) } }
}

@c @implementation
public func blip_listener_options_add_user(
    _ options: OpaquePointer!, _ name: blip_slice, _ password: blip_slice
) -> blip_status {
    HandleTable.with(options) { (options: ListenerOptions) in
        name.string { name in password.text { options.addUser(name, $0) } }
    }
}

@c @implementation
public func blip_listener_options_add_user_hash(
    _ options: OpaquePointer!, _ name: blip_slice, _ hash: blip_slice
) -> blip_status {
    HandleTable.with(options) { (options: ListenerOptions) in
        name.string { name in hash.string { options.addUser(name, hash: $0) } }
    }
}

@c @implementation
public func blip_listener_options_add_origin(_ options: OpaquePointer!, _ origin: blip_slice) -> blip_status {
    HandleTable.with(options) { (options: ListenerOptions) in origin.string { options.addOrigin($0) } }
}

@c @implementation
public func blip_listener_options_add_host(_ options: OpaquePointer!, _ name: blip_slice) -> blip_status {
    HandleTable.with(options) { (options: ListenerOptions) in name.string { options.addHost($0) } }
}

@c @implementation
public func blip_password_hash(
    _ password: blip_slice, _ buffer: UnsafeMutableRawPointer!, _ capacity: Int, _ size: UnsafeMutablePointer<Int>!
) -> blip_status {
    _ = Runtime.forkGuard
    return password.text { password in
        guard let buffer, let size else { return BLIP_ERROR_ARGUMENT }
        guard let hash = ListenerOptions.hash(password), let bytes = hash.slice.bytes else {
            return BLIP_ERROR_RESOURCES
        }
        // A capacity that does not fit an Int is negative here, and enough.
        guard capacity < 0 || bytes.count <= capacity else { return BLIP_ERROR_LIMIT }
        if let base = bytes.baseAddress { buffer.copyMemory(from: base, byteCount: bytes.count) }
        size.pointee = bytes.count
        return BLIP_OK
    }
}
