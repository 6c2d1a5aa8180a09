#if canImport(Glibc)
    import Glibc
#elseif canImport(Musl)
    import Musl
#endif

/// Growable raw memory with a maximum, owned by one place and freed with it.
///
/// Nothing is allocated before the first byte goes in. Not for use by several threads at once.
public struct Bytes: ~Copyable {
    /// The first byte; nil before anything was allocated. Valid until the next mutating call.
    public private(set) var base: UnsafeMutableRawPointer?
    /// Bytes in use.
    public private(set) var count: Int
    /// Bytes allocated.
    public private(set) var capacity: Int
    /// `count` never passes this.
    public let maximum: Int

    /// - Parameter maximum: the most bytes it will ever hold.
    public init(maximum: Int = Int.max) {
        base = nil
        count = 0
        capacity = 0
        self.maximum = max(0, maximum)
    }

    deinit {
        free(base)
    }

    /// True if no byte is in use.
    public var isEmpty: Bool { count == 0 }

    /// The bytes in use. Valid until the next mutating call.
    public var bytes: UnsafeRawBufferPointer { UnsafeRawBufferPointer(start: base, count: count) }

    /// The bytes in use, to be changed. Valid until the next mutating call.
    public var mutableBytes: UnsafeMutableRawBufferPointer { UnsafeMutableRawBufferPointer(start: base, count: count) }

    /// Calls `body` with the bytes in use.
    public func withUnsafeBytes<R, E: Error>(_ body: (UnsafeRawBufferPointer) throws(E) -> R) throws(E) -> R {
        try body(bytes)
    }

    /// Calls `body` with the bytes in use, to be changed.
    public mutating func withUnsafeMutableBytes<R, E: Error>(
        _ body: (UnsafeMutableRawBufferPointer) throws(E) -> R
    ) throws(E) -> R {
        try body(mutableBytes)
    }

    /// Makes room for `extra` bytes behind those in use.
    ///
    /// - Returns: false, with nothing changed, if the maximum would be passed or there is no memory.
    @inline(__always)
    public mutating func reserve(_ extra: Int) -> Bool {
        if extra >= 0 && extra <= capacity &- count { return true }
        return grow(extra)
    }

    @inline(never)
    private mutating func grow(_ extra: Int) -> Bool {
        guard extra >= 0, extra <= maximum - count else { return false }
        let needed = count + extra
        guard needed > capacity else { return true }
        // Doubling, with small steps skipped and the maximum kept.
        let doubled = capacity > Int.max / 2 ? needed : capacity * 2
        let wanted = min(maximum, max(needed, doubled, 64))
        if let memory = realloc(base, wanted) {
            base = memory
            capacity = wanted
        } else if let memory = realloc(base, needed) {
            base = memory
            capacity = needed
        } else {
            return false
        }
        return true
    }

    /// Appends a copy of `source`.
    ///
    /// - Returns: false, with nothing changed, if the maximum would be passed or there is no memory.
    @inline(__always) @discardableResult
    public mutating func append(_ source: UnsafeRawBufferPointer) -> Bool {
        guard let from = source.baseAddress, source.count > 0 else { return true }
        return append(from, source.count)
    }

    /// Appends a copy of `size` bytes at `source`.
    @inline(__always) @discardableResult
    public mutating func append(_ source: UnsafeRawPointer, _ size: Int) -> Bool {
        guard reserve(size), let base else { return size == 0 }
        memcpy(base + count, source, size)
        count &+= size
        return true
    }

    /// Appends one byte.
    @inline(__always) @discardableResult
    public mutating func append(_ byte: UInt8) -> Bool {
        guard reserve(1), let base else { return false }
        base.storeBytes(of: byte, toByteOffset: count, as: UInt8.self)
        count &+= 1
        return true
    }

    /// The allocated room behind the bytes in use; fill it, then call `didAppend`.
    public var room: UnsafeMutableRawBufferPointer {
        guard let base else { return UnsafeMutableRawBufferPointer(start: nil, count: 0) }
        return UnsafeMutableRawBufferPointer(start: base + count, count: capacity - count)
    }

    /// Takes the first `size` bytes of `room`, which the caller has filled, into use.
    @inline(__always)
    public mutating func didAppend(_ size: Int) {
        count &+= max(0, min(size, capacity &- count))
    }

    /// Drops the first `size` bytes; the rest moves to the front.
    public mutating func removeFirst(_ size: Int) {
        guard size > 0, let base else { return }
        guard size < count else {
            count = 0
            return
        }
        memmove(base, base + size, count - size)
        count -= size
    }

    /// Drops everything behind the first `size` bytes.
    public mutating func truncate(to size: Int) {
        count = max(0, min(count, size))
    }

    /// Replaces `size` bytes at `offset` by a copy of `source`, which must not lie in this memory.
    ///
    /// - Returns: false, with nothing changed, if the range is not in use, the maximum would be passed or there is no
    ///   memory.
    @discardableResult
    public mutating func replace(at offset: Int, _ size: Int, with source: UnsafeRawBufferPointer) -> Bool {
        guard offset >= 0, size >= 0, offset <= count, size <= count - offset else { return false }
        guard reserve(max(0, source.count - size)) else { return false }
        guard let base else { return true }
        memmove(base + offset + source.count, base + offset + size, count - offset - size)
        if let from = source.baseAddress, source.count > 0 { memcpy(base + offset, from, source.count) }
        count += source.count - size
        return true
    }

    /// Empties it.
    ///
    /// - Parameter keepingCapacity: the most allocated bytes to keep; a larger allocation is freed.
    @inline(__always)
    public mutating func removeAll(keepingCapacity: Int = 0) {
        count = 0
        if capacity > keepingCapacity { release() }
    }

    @inline(never)
    private mutating func release() {
        free(base)
        base = nil
        capacity = 0
    }
}
