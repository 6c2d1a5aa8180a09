import BLIP
import CBLIP

@c @implementation
public func blip_module_new(_ name: blip_slice, _ module: UnsafeMutablePointer<OpaquePointer?>!) -> blip_status {
    name.text { name in
        _ = Runtime.forkGuard
        return create(Module(name: Text(name)), module)
    }
}

@c @implementation
public func blip_module_retain(_ module: OpaquePointer!) -> OpaquePointer! {
    HandleTable.retain(module, as: Module.self)
}

@c @implementation
public func blip_module_release(_ module: OpaquePointer!) { HandleTable.release(module, as: Module.self) }

@c @implementation
public func blip_module_name(_ module: OpaquePointer!, _ name: UnsafeMutablePointer<blip_slice>!) -> blip_status {
    HandleTable.with(module) { (module: Module) in put(module.name, to: name) }
}

@c @implementation
public func blip_module_set_observer(
    _ module: OpaquePointer!, _ what: UInt32, _ queue: OpaquePointer!, _ fn: blip_observe_fn!,
    _ context: UnsafeMutableRawPointer!, _ release: (@convention(c) (UnsafeMutableRawPointer?) -> Void)!
) -> blip_status {
    let handler = Handler<blip_observe_fn>(fn, context, release)
    return HandleTable.with(module) { (module: Module) in
        withOptional(queue) { (queue: EventQueue?) in module.setObserver(what, queue, handler) }
    }
}

@c @implementation
public func blip_module_set_interceptor(
    _ module: OpaquePointer!, _ which: UInt32, _ fn: blip_intercept_fn!, _ context: UnsafeMutableRawPointer!,
    _ release: (@convention(c) (UnsafeMutableRawPointer?) -> Void)!
) -> blip_status {
    let handler = Handler<blip_intercept_fn>(fn, context, release)
    return HandleTable.with(module) { (module: Module) in module.setInterceptor(which, handler) }
}

@c @implementation
public func blip_module_set_handler(
    _ module: OpaquePointer!, _ profile: blip_slice, _ flags: UInt32, _ fn: blip_request_fn!,
    _ context: UnsafeMutableRawPointer!, _ release: (@convention(c) (UnsafeMutableRawPointer?) -> Void)!
) -> blip_status {
    let handler = RequestHandler(fn, context, release, flags: flags)
    return HandleTable.with(module) { (module: Module) in
        guard flags & ~BLIP_HANDLER_STREAM == 0 else { return BLIP_ERROR_ARGUMENT }
        return profile.text { module.setHandler(Text($0), handler) }
    }
}

/// Makes a handle of the module at a place.
private func give(
    _ modules: [Module], _ index: Int, _ module: UnsafeMutablePointer<OpaquePointer?>?
) -> blip_status {
    guard let module else { return BLIP_ERROR_ARGUMENT }
    guard modules.indices.contains(index) else { return BLIP_ERROR_NOT_FOUND }
    return create(modules[index], module)
}

@c @implementation
public func blip_connection_add_module(_ connection: OpaquePointer!, _ module: OpaquePointer!) -> blip_status {
    HandleTable.with(connection) { (connection: Connection) in
        HandleTable.with(module) { (module: Module) in connection.add(module) }
    }
}

@c @implementation
public func blip_connection_remove_module(_ connection: OpaquePointer!, _ module: OpaquePointer!) -> blip_status {
    HandleTable.with(connection) { (connection: Connection) in
        HandleTable.with(module) { (module: Module) in connection.remove(module) }
    }
}

@c @implementation
public func blip_connection_module_at(
    _ connection: OpaquePointer!, _ index: Int, _ module: UnsafeMutablePointer<OpaquePointer?>!
) -> blip_status {
    HandleTable.with(connection) { (connection: Connection) in give(connection.modules, index, module) }
}

@c @implementation
public func blip_listener_add_module(_ listener: OpaquePointer!, _ module: OpaquePointer!) -> blip_status {
    HandleTable.with(listener) { (listener: Listener) in
        HandleTable.with(module) { (module: Module) in listener.add(module) }
    }
}

@c @implementation
public func blip_listener_remove_module(_ listener: OpaquePointer!, _ module: OpaquePointer!) -> blip_status {
    HandleTable.with(listener) { (listener: Listener) in
        HandleTable.with(module) { (module: Module) in listener.remove(module) }
    }
}

@c @implementation
public func blip_listener_module_at(
    _ listener: OpaquePointer!, _ index: Int, _ module: UnsafeMutablePointer<OpaquePointer?>!
) -> blip_status {
    HandleTable.with(listener) { (listener: Listener) in give(listener.modules, index, module) }
}

@c @implementation
public func blip_runtime_add_module(_ runtime: OpaquePointer!, _ module: OpaquePointer!) -> blip_status {
    HandleTable.with(runtime) { (runtime: Runtime) in
        HandleTable.with(module) { (module: Module) in runtime.add(module) }
    }
}

@c @implementation
public func blip_runtime_remove_module(_ runtime: OpaquePointer!, _ module: OpaquePointer!) -> blip_status {
    HandleTable.with(runtime) { (runtime: Runtime) in
        HandleTable.with(module) { (module: Module) in runtime.remove(module) }
    }
}

@c @implementation
public func blip_runtime_module_at(
    _ runtime: OpaquePointer!, _ index: Int, _ module: UnsafeMutablePointer<OpaquePointer?>!
) -> blip_status {
    HandleTable.with(runtime) { (runtime: Runtime) in give(runtime.modules, index, module) }
}
