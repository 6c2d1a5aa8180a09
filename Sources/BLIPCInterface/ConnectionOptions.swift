import BLIP
import CBLIP

@c @implementation
public func blip_connection_options_new() -> OpaquePointer! {
    _ = Runtime.forkGuard
    return HandleTable.create(ConnectionOptions())
}

@c @implementation
public func blip_connection_options_release(_ options: OpaquePointer!) {
    HandleTable.release(options, as: ConnectionOptions.self)
}

@c @implementation
public func blip_connection_options_add_subprotocol(_ options: OpaquePointer!, _ name: blip_slice) -> blip_status {
    HandleTable.with(options) { (options: ConnectionOptions) in name.string { options.addSubprotocol($0) } }
}

@c @implementation
public func blip_connection_options_set_queue(_ options: OpaquePointer!, _ queue: OpaquePointer!) -> blip_status {
    HandleTable.with(options) { (options: ConnectionOptions) in setQueue(queue) { options.setQueue($0) } }
}

@c @implementation
public func blip_connection_options_set_close_timeout(_ options: OpaquePointer!, _ milliseconds: Int64) -> blip_status {
    HandleTable.with(options) { (options: ConnectionOptions) in options.setCloseTimeout(milliseconds) }
}

@c @implementation
public func blip_connection_options_set_bye_timeout(_ options: OpaquePointer!, _ milliseconds: Int64) -> blip_status {
    HandleTable.with(options) { (options: ConnectionOptions) in options.setByeTimeout(milliseconds) }
}

@c @implementation
public func blip_connection_options_set_half_close(_ options: OpaquePointer!, _ milliseconds: Int64) -> blip_status {
    HandleTable.with(options) { (options: ConnectionOptions) in options.setHalfClose(milliseconds) }
}

@c @implementation
public func blip_connection_options_set_ping(
    _ options: OpaquePointer!, _ interval: Int64, _ missed: UInt32
) -> blip_status {
    HandleTable.with(options) { (options: ConnectionOptions) in options.setPing(interval, missed) }
}

@c @implementation
public func blip_connection_options_set_ping_only_idle(_ options: OpaquePointer!, _ onlyIdle: Bool) -> blip_status {
    HandleTable.with(options) { (options: ConnectionOptions) in
        options.setPingOnlyIdle(onlyIdle)
        return BLIP_OK
    }
}

@c @implementation
public func blip_connection_options_set_frame_size(_ options: OpaquePointer!, _ bytes: UInt32) -> blip_status {
    HandleTable.with(options) { (options: ConnectionOptions) in options.setFrameSize(bytes) }
}

@c @implementation
public func blip_connection_options_set_compression_level(_ options: OpaquePointer!, _ level: Int32) -> blip_status {
    HandleTable.with(options) { (options: ConnectionOptions) in options.setCompressionLevel(level) }
}

@c @implementation
public func blip_connection_options_set_limit(
    _ options: OpaquePointer!, _ limit: Int32, _ value: UInt64
) -> blip_status {
    HandleTable.with(options) { (options: ConnectionOptions) in options.setLimit(limit, value) }
}

@c @implementation
public func blip_connection_options_set_tls_identity(
    _ options: OpaquePointer!, _ certificate: blip_slice, _ key: blip_slice
) -> blip_status {
    HandleTable.with(options) { (options: ConnectionOptions) in
        certificate.string { certificate in
            key.string { key in
                options.setIdentity(certificate, key)
                return BLIP_OK
            }
        }
    }
}

@c @implementation
public func blip_connection_options_set_tls_versions(
    _ options: OpaquePointer!, _ minimum: Int32, _ maximum: Int32
) -> blip_status {
    HandleTable.with(options) { (options: ConnectionOptions) in options.setTLSVersions(minimum, maximum) }
}

@c @implementation
public func blip_connection_options_add_header(
    _ options: OpaquePointer!, _ name: blip_slice, _ value: blip_slice
) -> blip_status {
    HandleTable.with(options) { (options: ConnectionOptions) in
        name.string { name in value.string { options.addHeader(name, $0) } }
    }
}

@c @implementation
public func blip_connection_options_set_user_agent(_ options: OpaquePointer!, _ text: blip_slice) -> blip_status {
    HandleTable.with(options) { (options: ConnectionOptions) in text.string { options.setUserAgent($0) } }
}

@c @implementation
public func blip_connection_options_set_connect_timeout(
    _ options: OpaquePointer!, _ milliseconds: Int64
) -> blip_status {
    HandleTable.with(options) { (options: ConnectionOptions) in options.setConnectTimeout(milliseconds) }
}

@c @implementation
public func blip_connection_options_set_tls_ca_file(_ options: OpaquePointer!, _ path: blip_slice) -> blip_status {
    HandleTable.with(options) { (options: ConnectionOptions) in
        path.string {
            options.setCAFile($0)
            return BLIP_OK
        }
    }
}

@c @implementation
public func blip_connection_options_set_tls_verify(_ options: OpaquePointer!, _ verify: Bool) -> blip_status {
    HandleTable.with(options) { (options: ConnectionOptions) in
        options.setVerifies(verify)
        return BLIP_OK
    }
}

@c @implementation
public func blip_connection_options_set_tls_server_name(_ options: OpaquePointer!, _ name: blip_slice) -> blip_status {
    HandleTable.with(options) { (options: ConnectionOptions) in
        name.string {
            options.setServerName($0)
            return BLIP_OK
        }
    }
}

@c @implementation
public func blip_connection_options_set_proxy(_ options: OpaquePointer!, _ url: blip_slice) -> blip_status {
    HandleTable.with(options) { (options: ConnectionOptions) in url.string { options.setProxy($0) } }
}

@c @implementation
public func blip_connection_options_set_proxy_from_environment(
    _ options: OpaquePointer!, _ enabled: Bool
) -> blip_status {
    HandleTable.with(options) { (options: ConnectionOptions) in
        options.setProxyFromEnvironment(enabled)
        return BLIP_OK
    }
}

@c @implementation
public func blip_connection_options_set_proxy_tls_ca_file(
    _ options: OpaquePointer!, _ path: blip_slice
) -> blip_status {
    HandleTable.with(options) { (options: ConnectionOptions) in
        path.string {
            options.setProxyCAFile($0)
            return BLIP_OK
        }
    }
}

@c @implementation
public func blip_connection_options_set_local_address(
    _ options: OpaquePointer!, _ interface_address: blip_slice, _ port: UInt16
) -> blip_status {
    HandleTable.with(options) { (options: ConnectionOptions) in
        interface_address.string {
            options.setLocalAddress($0, port)
            return BLIP_OK
        }
    }
}

@c @implementation
public func blip_connection_options_set_ip_policy(_ options: OpaquePointer!, _ policy: Int32) -> blip_status {
    HandleTable.with(options) { (options: ConnectionOptions) in options.setAddressPolicy(policy) }
}

@c @implementation
public func blip_connection_options_set_service_lookup(_ options: OpaquePointer!, _ enabled: Bool) -> blip_status {
    HandleTable.with(options) { (options: ConnectionOptions) in
        options.setServiceLookup(enabled)
        return BLIP_OK
    }
}

@c @implementation
public func blip_connection_options_add_tls_alpn(_ options: OpaquePointer!, _ name: blip_slice) -> blip_status {
    HandleTable.with(options) { (options: ConnectionOptions) in name.string { options.addTLSProtocol($0) } }
}

@c @implementation
public func blip_connection_options_set_tls_ciphers(
    _ options: OpaquePointer!, _ ciphers: blip_slice, _ suites: blip_slice
) -> blip_status {
    HandleTable.with(options) { (options: ConnectionOptions) in
        ciphers.string { ciphers in
            suites.string { suites in
                options.setCiphers(ciphers, suites)
                return BLIP_OK
            }
        }
    }
}

@c @implementation
public func blip_connection_options_set_tls_crl_file(_ options: OpaquePointer!, _ path: blip_slice) -> blip_status {
    HandleTable.with(options) { (options: ConnectionOptions) in
        path.string {
            options.setCRLFile($0)
            return BLIP_OK
        }
    }
}

@c @implementation
public func blip_connection_options_set_tls_key_log_file(_ options: OpaquePointer!, _ path: blip_slice) -> blip_status {
    HandleTable.with(options) { (options: ConnectionOptions) in
        path.string {
            options.setKeyLogFile($0)
            return BLIP_OK
        }
    }
}

@c @implementation
public func blip_connection_options_set_credentials(
    _ options: OpaquePointer!, _ user: blip_slice, _ password: blip_slice
) -> blip_status {
    HandleTable.with(options) { (options: ConnectionOptions) in
        user.string { user in password.text { options.setCredentials(user, $0) } }
    }
}

@c @implementation
public func blip_connection_options_set_preemptive(_ options: OpaquePointer!, _ preemptive: Bool) -> blip_status {
    HandleTable.with(options) { (options: ConnectionOptions) in
        options.setPreemptive(preemptive)
        return BLIP_OK
    }
}

@c @implementation
public func blip_connection_options_set_bearer_token(_ options: OpaquePointer!, _ token: blip_slice) -> blip_status {
    HandleTable.with(options) { (options: ConnectionOptions) in
        token.text { options.setBearerToken($0) }
    }
}

@c @implementation
public func blip_connection_options_set_redirect_limit(_ options: OpaquePointer!, _ count: UInt32) -> blip_status {
    HandleTable.with(options) { (options: ConnectionOptions) in options.setRedirectLimit(count) }
}

@c @implementation
public func blip_connection_options_set_cookies(_ options: OpaquePointer!, _ enabled: Bool) -> blip_status {
    HandleTable.with(options) { (options: ConnectionOptions) in
        options.setCookies(enabled)
        return BLIP_OK
    }
}

@c @implementation
public func blip_connection_options_set_read_timeout(
    _ options: OpaquePointer!, _ milliseconds: Int64
) -> blip_status {
    HandleTable.with(options) { (options: ConnectionOptions) in options.setReadTimeout(milliseconds) }
}

@c @implementation
public func blip_connection_options_set_write_timeout(
    _ options: OpaquePointer!, _ milliseconds: Int64
) -> blip_status {
    HandleTable.with(options) { (options: ConnectionOptions) in options.setWriteTimeout(milliseconds) }
}
