import BLIP
import CBLIP

@c @implementation
public func blip_pool_new(
    _ runtime: OpaquePointer!, _ options: OpaquePointer!, _ pool: UnsafeMutablePointer<OpaquePointer?>!
) -> blip_status {
    withRuntime(runtime) { runtime in
        withOptional(options) { (options: ConnectionOptions?) in
            guard let pool else { return BLIP_ERROR_ARGUMENT }
            do throws(Failure) {
                return create(try Pool(runtime: runtime, options: options), pool)
            } catch {
                return error.status
            }
        }
    }
}

@c @implementation
public func blip_pool_retain(_ pool: OpaquePointer!) -> OpaquePointer! { HandleTable.retain(pool, as: Pool.self) }

@c @implementation
public func blip_pool_release(_ pool: OpaquePointer!) { HandleTable.release(pool, as: Pool.self) }

@c @implementation
public func blip_pool_add_module(_ pool: OpaquePointer!, _ module: OpaquePointer!) -> blip_status {
    HandleTable.with(pool) { (pool: Pool) in
        HandleTable.with(module) { (module: Module) in pool.add(module) }
    }
}

@c @implementation
public func blip_pool_set_idle_timeout(_ pool: OpaquePointer!, _ milliseconds: Int64) -> blip_status {
    HandleTable.with(pool) { (pool: Pool) in
        guard isTimeout(milliseconds) else { return BLIP_ERROR_ARGUMENT }
        pool.setIdleTimeout(milliseconds)
        return BLIP_OK
    }
}

/// Gives the connection that `find` finds for a URL.
private func give(
    _ pool: OpaquePointer?, _ url: blip_slice, _ connection: UnsafeMutablePointer<OpaquePointer?>?,
    _ missing: blip_status, _ find: (Pool, String) throws(Failure) -> OpaquePointer?
) -> blip_status {
    HandleTable.with(pool) { (pool: Pool) in
        url.string { url in
            guard let connection else { return BLIP_ERROR_ARGUMENT }
            do throws(Failure) {
                guard let handle = try find(pool, url) else { return missing }
                connection.pointee = handle
                return BLIP_OK
            } catch {
                return error.status
            }
        }
    }
}

@c @implementation
public func blip_pool_connection(
    _ pool: OpaquePointer!, _ url: blip_slice, _ connection: UnsafeMutablePointer<OpaquePointer?>!
) -> blip_status {
    give(pool, url, connection, BLIP_ERROR_RESOURCES) { (pool, url) throws(Failure) in try pool.connection(to: url) }
}

@c @implementation
public func blip_pool_existing_connection(
    _ pool: OpaquePointer!, _ url: blip_slice, _ connection: UnsafeMutablePointer<OpaquePointer?>!
) -> blip_status {
    give(pool, url, connection, BLIP_ERROR_NOT_FOUND) { (pool, url) throws(Failure) in
        try pool.existingConnection(to: url)
    }
}

@c @implementation
public func blip_pool_count(_ pool: OpaquePointer!, _ count: UnsafeMutablePointer<Int>!) -> blip_status {
    HandleTable.with(pool) { (pool: Pool) in put(pool.count, to: count) }
}

@c @implementation
public func blip_pool_close_all(_ pool: OpaquePointer!, _ code: UInt16, _ reason: blip_slice) -> blip_status {
    HandleTable.with(pool) { (pool: Pool) in
        reason.text { reason in
            guard reason.count <= 123 else { return BLIP_ERROR_ARGUMENT }
            return pool.closeAll(code: code, reason: [UInt8](reason))
        }
    }
}
