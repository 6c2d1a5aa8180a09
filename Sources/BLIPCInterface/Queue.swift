import BLIP
import CBLIP

@c @implementation
public func blip_queue_new(_ capacity: UInt32, _ queue: UnsafeMutablePointer<OpaquePointer?>!) -> blip_status {
    _ = Runtime.forkGuard
    guard let queue else { return BLIP_ERROR_ARGUMENT }
    return create(EventQueue(capacity: capacity), queue)
}

@c @implementation
public func blip_queue_retain(_ queue: OpaquePointer!) -> OpaquePointer! {
    HandleTable.retain(queue, as: EventQueue.self)
}

@c @implementation
public func blip_queue_release(_ queue: OpaquePointer!) { HandleTable.release(queue, as: EventQueue.self) }

@c @implementation
public func blip_queue_fd(_ queue: OpaquePointer!, _ fd: UnsafeMutablePointer<Int32>!) -> blip_status {
    HandleTable.with(queue) { (queue: EventQueue) in
        guard fd != nil else { return BLIP_ERROR_ARGUMENT }
        let descriptor = queue.pollDescriptor()
        return descriptor < 0 ? BLIP_ERROR_RESOURCES : put(descriptor, to: fd)
    }
}

@c @implementation
public func blip_queue_dispatch(
    _ queue: OpaquePointer!, _ max: Int, _ timeout: Int64, _ count: UnsafeMutablePointer<Int>!
) -> blip_status {
    HandleTable.with(queue) { (queue: EventQueue) in
        guard isTimeout(timeout) else { return BLIP_ERROR_ARGUMENT }
        if timeout != 0, Runtime.isOnLoopThread { return BLIP_ERROR_WOULD_DEADLOCK }
        let done = queue.dispatch(max: max < 0 ? Int.max : max, timeout: timeout)
        count?.pointee = done
        return BLIP_OK
    }
}

@c @implementation
public func blip_queue_next(
    _ queue: OpaquePointer!, _ events: UnsafeMutablePointer<OpaquePointer?>!, _ max: Int, _ timeout: Int64,
    _ count: UnsafeMutablePointer<Int>!
) -> blip_status {
    HandleTable.with(queue) { (queue: EventQueue) in
        guard let events, let count, isTimeout(timeout), max >= 0 else { return BLIP_ERROR_ARGUMENT }
        if timeout != 0, Runtime.isOnLoopThread { return BLIP_ERROR_WOULD_DEADLOCK }
        let taken = queue.next(max: max, timeout: timeout)
        for (index, event) in taken.enumerated() { events[index] = HandleTable.create(event) }
        count.pointee = taken.count
        return BLIP_OK
    }
}

@c @implementation
public func blip_queue_wake(_ queue: OpaquePointer!) -> blip_status {
    HandleTable.with(queue) { (queue: EventQueue) in
        queue.wake()
        return BLIP_OK
    }
}

@c @implementation
public func blip_queue_count(_ queue: OpaquePointer!, _ count: UnsafeMutablePointer<Int>!) -> blip_status {
    HandleTable.with(queue) { (queue: EventQueue) in put(queue.count, to: count) }
}
