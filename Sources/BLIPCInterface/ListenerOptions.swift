import BLIP
import CBLIP

@c @implementation
public func blip_listener_options_new() -> OpaquePointer! {
    _ = Runtime.forkGuard
    return HandleTable.create(ListenerOptions())
}

@c @implementation
public func blip_listener_options_release(_ options: OpaquePointer!) {
    HandleTable.release(options, as: ListenerOptions.self)
}

@c @implementation
public func blip_listener_options_add_subprotocol(_ options: OpaquePointer!, _ name: blip_slice) -> blip_status {
    HandleTable.with(options) { (options: ListenerOptions) in name.string { options.addSubprotocol($0) } }
}

@c @implementation
public func blip_listener_options_set_queue(_ options: OpaquePointer!, _ queue: OpaquePointer!) -> blip_status {
    HandleTable.with(options) { (options: ListenerOptions) in setQueue(queue) { options.setQueue($0) } }
}

@c @implementation
public func blip_listener_options_set_blip1(_ options: OpaquePointer!, _ enabled: Bool) -> blip_status {
    HandleTable.with(options) { (options: ListenerOptions) in
        options.setBLIP1(enabled)
        return BLIP_OK
    }
}

@c @implementation
public func blip_listener_options_set_websocket(_ options: OpaquePointer!, _ enabled: Bool) -> blip_status {
    HandleTable.with(options) { (options: ListenerOptions) in
        options.setWebSocket(enabled)
        return BLIP_OK
    }
}

@c @implementation
public func blip_listener_options_set_close_timeout(_ options: OpaquePointer!, _ milliseconds: Int64) -> blip_status {
    HandleTable.with(options) { (options: ListenerOptions) in options.setCloseTimeout(milliseconds) }
}

@c @implementation
public func blip_listener_options_set_bye_timeout(_ options: OpaquePointer!, _ milliseconds: Int64) -> blip_status {
    HandleTable.with(options) { (options: ListenerOptions) in options.setByeTimeout(milliseconds) }
}

@c @implementation
public func blip_listener_options_set_half_close(_ options: OpaquePointer!, _ milliseconds: Int64) -> blip_status {
    HandleTable.with(options) { (options: ListenerOptions) in options.setHalfClose(milliseconds) }
}

@c @implementation
public func blip_listener_options_set_ping(
    _ options: OpaquePointer!, _ interval: Int64, _ missed: UInt32
) -> blip_status {
    HandleTable.with(options) { (options: ListenerOptions) in options.setPing(interval, missed) }
}

@c @implementation
public func blip_listener_options_set_ping_only_idle(_ options: OpaquePointer!, _ onlyIdle: Bool) -> blip_status {
    HandleTable.with(options) { (options: ListenerOptions) in
        options.setPingOnlyIdle(onlyIdle)
        return BLIP_OK
    }
}

@c @implementation
public func blip_listener_options_set_frame_size(_ options: OpaquePointer!, _ bytes: UInt32) -> blip_status {
    HandleTable.with(options) { (options: ListenerOptions) in options.setFrameSize(bytes) }
}

@c @implementation
public func blip_listener_options_set_compression_level(_ options: OpaquePointer!, _ level: Int32) -> blip_status {
    HandleTable.with(options) { (options: ListenerOptions) in options.setCompressionLevel(level) }
}

@c @implementation
public func blip_listener_options_set_limit(
    _ options: OpaquePointer!, _ limit: Int32, _ value: UInt64
) -> blip_status {
    HandleTable.with(options) { (options: ListenerOptions) in options.setLimit(limit, value) }
}

@c @implementation
public func blip_listener_options_set_tls_identity(
    _ options: OpaquePointer!, _ certificate: blip_slice, _ key: blip_slice
) -> blip_status {
    HandleTable.with(options) { (options: ListenerOptions) in
        certificate.string { certificate in
            key.string { key in
                options.setIdentity(certificate, key)
                return BLIP_OK
            }
        }
    }
}

@c @implementation
public func blip_listener_options_set_tls_versions(
    _ options: OpaquePointer!, _ minimum: Int32, _ maximum: Int32
) -> blip_status {
    HandleTable.with(options) { (options: ListenerOptions) in options.setTLSVersions(minimum, maximum) }
}

@c @implementation
public func blip_listener_options_add_path(_ options: OpaquePointer!, _ path: blip_slice) -> blip_status {
    HandleTable.with(options) { (options: ListenerOptions) in path.string { options.addPath($0) } }
}

@c @implementation
public func blip_listener_options_set_tls_client_ca_file(
    _ options: OpaquePointer!, _ path: blip_slice, _ required: Bool
) -> blip_status {
    HandleTable.with(options) { (options: ListenerOptions) in
        path.string {
            options.setClientCAFile($0, required: required)
            return BLIP_OK
        }
    }
}

@c @implementation
public func blip_listener_options_set_handshake_timeout(
    _ options: OpaquePointer!, _ milliseconds: Int64
) -> blip_status {
    HandleTable.with(options) { (options: ListenerOptions) in options.setConnectTimeout(milliseconds) }
}

@c @implementation
public func blip_listener_options_set_metrics_path(_ options: OpaquePointer!, _ path: blip_slice) -> blip_status {
    HandleTable.with(options) { (options: ListenerOptions) in path.string { options.setMetricsPath($0) } }
}

@c @implementation
public func blip_listener_options_set_max_connections(_ options: OpaquePointer!, _ count: UInt32) -> blip_status {
    HandleTable.with(options) { (options: ListenerOptions) in
        options.setMaximumConnections(count)
        return BLIP_OK
    }
}

@c @implementation
public func blip_listener_options_add_tls_alpn(_ options: OpaquePointer!, _ name: blip_slice) -> blip_status {
    HandleTable.with(options) { (options: ListenerOptions) in name.string { options.addTLSProtocol($0) } }
}

@c @implementation
public func blip_listener_options_set_tls_ciphers(
    _ options: OpaquePointer!, _ ciphers: blip_slice, _ suites: blip_slice
) -> blip_status {
    HandleTable.with(options) { (options: ListenerOptions) in
        ciphers.string { ciphers in
            suites.string { suites in
                options.setCiphers(ciphers, suites)
                return BLIP_OK
            }
        }
    }
}

@c @implementation
public func blip_listener_options_set_tls_crl_file(_ options: OpaquePointer!, _ path: blip_slice) -> blip_status {
    HandleTable.with(options) { (options: ListenerOptions) in
        path.string {
            options.setCRLFile($0)
            return BLIP_OK
        }
    }
}

@c @implementation
public func blip_listener_options_set_tls_key_log_file(_ options: OpaquePointer!, _ path: blip_slice) -> blip_status {
    HandleTable.with(options) { (options: ListenerOptions) in
        path.string {
            options.setKeyLogFile($0)
            return BLIP_OK
        }
    }
}

@c @implementation
public func blip_listener_options_set_read_timeout(
    _ options: OpaquePointer!, _ milliseconds: Int64
) -> blip_status {
    HandleTable.with(options) { (options: ListenerOptions) in options.setReadTimeout(milliseconds) }
}

@c @implementation
public func blip_listener_options_set_write_timeout(
    _ options: OpaquePointer!, _ milliseconds: Int64
) -> blip_status {
    HandleTable.with(options) { (options: ListenerOptions) in options.setWriteTimeout(milliseconds) }
}
