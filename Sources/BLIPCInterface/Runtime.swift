import BLIP
import CBLIP

@c @implementation
public func blip_runtime_options_new() -> OpaquePointer! {
    _ = Runtime.forkGuard
    return HandleTable.create(RuntimeOptions())
}

@c @implementation
public func blip_runtime_options_release(_ options: OpaquePointer!) {
    HandleTable.release(options, as: RuntimeOptions.self)
}

@c @implementation
public func blip_runtime_options_set_threads(_ options: OpaquePointer!, _ threads: UInt32) -> blip_status {
    HandleTable.with(options) { (options: RuntimeOptions) in
        guard threads <= 256 else { return BLIP_ERROR_ARGUMENT }
        options.threads = threads
        return BLIP_OK
    }
}

@c @implementation
public func blip_runtime_options_set_queue(_ options: OpaquePointer!, _ queue: OpaquePointer!) -> blip_status {
    HandleTable.with(options) { (options: RuntimeOptions) in
        setQueue(queue) { options.queue = $0 }
    }
}

@c @implementation
public func blip_runtime_options_set_memory_limit(_ options: OpaquePointer!, _ bytes: UInt64) -> blip_status {
    HandleTable.with(options) { (options: RuntimeOptions) in
        guard bytes == 0 || (1 << 20...1 << 50).contains(bytes) else { return BLIP_ERROR_ARGUMENT }
        options.memoryLimit = Int(bytes)
        return BLIP_OK
    }
}

/// Looks a queue up; NULL means none.
func setQueue(_ handle: OpaquePointer?, _ set: (EventQueue?) -> Void) -> blip_status {
    guard let handle else {
        set(nil)
        return BLIP_OK
    }
    return HandleTable.with(handle) { (queue: EventQueue) in
        set(queue)
        return BLIP_OK
    }
}

@c @implementation
public func blip_runtime_new(
    _ options: OpaquePointer!, _ runtime: UnsafeMutablePointer<OpaquePointer?>!
) -> blip_status {
    _ = Runtime.forkGuard
    guard let runtime else { return BLIP_ERROR_ARGUMENT }
    func make(_ threads: UInt32, _ queue: EventQueue?, _ memoryLimit: Int) -> blip_status {
        do {
            return create(try Runtime(threads: Int(threads), queue: queue, memoryLimit: memoryLimit), runtime)
        } catch {
            return BLIP_ERROR_RESOURCES
        }
    }
    guard let options else { return make(1, nil, 0) }
    return HandleTable.with(options) { (options: RuntimeOptions) in
        make(options.threads, options.queue, options.memoryLimit)
    }
}

@c @implementation
public func blip_runtime_default() -> OpaquePointer! {
    _ = Runtime.forkGuard
    return Runtime.shared()?.1
}

@c @implementation
public func blip_runtime_retain(_ runtime: OpaquePointer!) -> OpaquePointer! {
    HandleTable.retain(runtime, as: Runtime.self)
}

@c @implementation
public func blip_runtime_release(_ runtime: OpaquePointer!) { HandleTable.release(runtime, as: Runtime.self) }

@c @implementation
public func blip_runtime_thread_count(_ runtime: OpaquePointer!, _ count: UnsafeMutablePointer<UInt32>!) -> blip_status
{
    HandleTable.with(runtime) { (runtime: Runtime) in put(UInt32(runtime.threadCount), to: count) }
}

@c @implementation
public func blip_runtime_fd(_ runtime: OpaquePointer!, _ fd: UnsafeMutablePointer<Int32>!) -> blip_status {
    HandleTable.with(runtime) { (runtime: Runtime) in
        guard let descriptor = runtime.descriptor else { return BLIP_ERROR_STATE }
        return put(descriptor, to: fd)
    }
}

@c @implementation
public func blip_runtime_run_once(
    _ runtime: OpaquePointer!, _ timeout: Int64, _ events: UnsafeMutablePointer<UInt32>!
) -> blip_status {
    HandleTable.with(runtime) { (runtime: Runtime) in
        guard isTimeout(timeout) else { return BLIP_ERROR_ARGUMENT }
        let (status, count) = runtime.runOnce(timeout: timeout)
        if status == BLIP_OK { events?.pointee = UInt32(clamping: count) }
        return status
    }
}

@c @implementation
public func blip_runtime_stop(_ runtime: OpaquePointer!, _ timeout: Int64) -> blip_status {
    HandleTable.with(runtime) { (runtime: Runtime) in
        isTimeout(timeout) ? runtime.stop(timeout: timeout) : BLIP_ERROR_ARGUMENT
    }
}

@c @implementation
public func blip_runtime_set_log(
    _ runtime: OpaquePointer!, _ level: Int32, _ fn: blip_log_fn!, _ context: UnsafeMutableRawPointer!,
    _ release: (@convention(c) (UnsafeMutableRawPointer?) -> Void)!
) -> blip_status {
    let handler = Handler<blip_log_fn>(fn, context, release)
    return HandleTable.with(runtime) { (runtime: Runtime) in
        guard level >= 0, level <= BLIP_LOG_DEBUG else { return BLIP_ERROR_ARGUMENT }
        runtime.setLog(level, handler)
        return BLIP_OK
    }
}

@c @implementation
public func blip_runtime_set_log_queue(
    _ runtime: OpaquePointer!, _ level: Int32, _ queue: OpaquePointer!, _ fn: blip_log_fn!,
    _ context: UnsafeMutableRawPointer!, _ release: (@convention(c) (UnsafeMutableRawPointer?) -> Void)!
) -> blip_status {
    let handler = Handler<blip_log_fn>(fn, context, release)
    return HandleTable.with(runtime) { (runtime: Runtime) in
        HandleTable.with(queue) { (queue: EventQueue) in
            guard level >= 0, level <= BLIP_LOG_DEBUG else { return BLIP_ERROR_ARGUMENT }
            runtime.setLog(level, handler, queue: queue)
            return BLIP_OK
        }
    }
}
