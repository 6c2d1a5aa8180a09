import BLIP
import CBLIP

@c @implementation
public func blip_connection_counters(
    _ connection: OpaquePointer!, _ counters: UnsafeMutablePointer<OpaquePointer?>!
) -> blip_status {
    HandleTable.with(connection) { (connection: Connection) in
        counters == nil ? BLIP_ERROR_ARGUMENT : create(connection.snapshot(), counters)
    }
}

@c @implementation
public func blip_listener_counters(
    _ listener: OpaquePointer!, _ counters: UnsafeMutablePointer<OpaquePointer?>!
) -> blip_status {
    HandleTable.with(listener) { (listener: Listener) in
        counters == nil ? BLIP_ERROR_ARGUMENT : create(listener.snapshot(), counters)
    }
}

@c @implementation
public func blip_runtime_counters(
    _ runtime: OpaquePointer!, _ counters: UnsafeMutablePointer<OpaquePointer?>!
) -> blip_status {
    withRuntime(runtime) { runtime in
        counters == nil ? BLIP_ERROR_ARGUMENT : create(runtime.snapshot(), counters)
    }
}

@c @implementation
public func blip_runtime_metrics_text(
    _ runtime: OpaquePointer!, _ counters: UnsafeMutablePointer<OpaquePointer?>!,
    _ text: UnsafeMutablePointer<blip_slice>!
) -> blip_status {
    withRuntime(runtime) { runtime in
        guard counters != nil, let text else { return BLIP_ERROR_ARGUMENT }
        let (snapshot, written) = runtime.metrics()
        let status = create(snapshot, counters)
        if status == BLIP_OK { text.pointee = written.slice }
        return status
    }
}

@c @implementation
public func blip_counters_new() -> OpaquePointer! {
    _ = Runtime.forkGuard
    return HandleTable.create(CounterSnapshot())
}

@c @implementation
public func blip_counters_retain(_ counters: OpaquePointer!) -> OpaquePointer! {
    HandleTable.retain(counters, as: CounterSnapshot.self)
}

@c @implementation
public func blip_counters_release(_ counters: OpaquePointer!) {
    HandleTable.release(counters, as: CounterSnapshot.self)
}

@c @implementation
public func blip_counters_value(
    _ counters: OpaquePointer!, _ counter: Int32, _ value: UnsafeMutablePointer<UInt64>!
) -> blip_status {
    HandleTable.with(counters) { (counters: CounterSnapshot) in
        guard let number = counters[counter] else { return BLIP_ERROR_ARGUMENT }
        return put(number, to: value)
    }
}

@c @implementation
public func blip_counters_add(_ counters: OpaquePointer!, _ other: OpaquePointer!) -> blip_status {
    HandleTable.with(counters) { (counters: CounterSnapshot) in
        HandleTable.with(other) { (other: CounterSnapshot) in
            counters.add(other)
            return BLIP_OK
        }
    }
}

@c @implementation
public func blip_counters_percentile(
    _ counters: OpaquePointer!, _ percent: Double, _ microseconds: UnsafeMutablePointer<Int64>!
) -> blip_status {
    HandleTable.with(counters) { (counters: CounterSnapshot) in
        guard percent >= 0, percent <= 100, microseconds != nil else { return BLIP_ERROR_ARGUMENT }
        guard let time = counters.percentile(percent) else { return BLIP_ERROR_NOT_FOUND }
        return put(time, to: microseconds)
    }
}

@c @implementation
public func blip_counters_bucket(
    _ counters: OpaquePointer!, _ index: Int, _ end: UnsafeMutablePointer<UInt64>!,
    _ count: UnsafeMutablePointer<UInt64>!
) -> blip_status {
    HandleTable.with(counters) { (counters: CounterSnapshot) in
        guard let end, let count else { return BLIP_ERROR_ARGUMENT }
        guard let bucket = counters.bucket(index) else { return BLIP_ERROR_NOT_FOUND }
        end.pointee = bucket.end
        count.pointee = bucket.count
        return BLIP_OK
    }
}
