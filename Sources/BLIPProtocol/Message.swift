#if canImport(Glibc)
    import Glibc
#elseif canImport(Musl)
    import Musl
#endif
import Synchronization

/// One message, either way.
///
/// *Function.* The owner fills an outgoing one and gives it to `Engine.send`; from then on, until its last frame was
/// cut, only the engine changes it. An incoming one is made by the engine (through the owner's `makeMessage`) and
/// handed over by events. `reset` makes one fresh for a pool.
///
/// *Threads.* Confined to the thread of its engine while an engine refers to it, to its owner otherwise: this is why it
/// is marked `@unchecked Sendable`.
open class Message: @unchecked Sendable {
    final let state: UnsafeMutablePointer<MessageState>

    /// A fresh message: an empty request.
    public init() {
        state = .allocate(capacity: 1)
        state.initialize(to: MessageState())
    }

    deinit {
        state.deinitialize(count: 1)
        state.deallocate()
    }

    /// Request, response or error response.
    public final var kind: MessageKind {
        get { state.pointee.kind }
        set { state.pointee.kind = newValue }
    }

    /// Of a received message: those of its first frame.
    public final var flags: MessageFlags {
        get { state.pointee.flags }
        set { state.pointee.flags = newValue }
    }

    /// A request's number is 0 until its first frame is cut; the sender of a response sets it.
    public final var number: UInt64 {
        get { state.pointee.number }
        set { state.pointee.number = newValue }
    }

    // MARK: Outgoing

    /// The properties to send, key NUL value NUL …, in the order of setting, never abbreviated.
    public final var properties: Bytes {
        _read { yield state.pointee.properties }
        _modify {
            forgetCursor()
            yield &state.pointee.properties
        }
    }

    /// The first part of the body to send.
    public final var body: Bytes {
        _read { yield state.pointee.body }
        _modify { yield &state.pointee.body }
    }

    /// The parts of the body that follow `body`, in order.
    public final var sources: [BodySource] {
        _read { yield state.pointee.sources }
        _modify { yield &state.pointee.sources }
    }

    /// Body bytes, before compression, that were cut into frames.
    public final var bodyBytesSent: UInt64 { state.pointee.bodyBytesSent }

    /// True once the first frame was cut.
    public final var isStarted: Bool { state.pointee.isStarted }

    /// True once the last frame was cut.
    public final var isFinished: Bool { state.pointee.isFinished }

    // MARK: Incoming

    /// The received properties, key NUL value NUL …, never abbreviated. Valid until the message is reset, and until its
    /// next event while it is incomplete.
    public final var incomingProperties: UnsafeRawBufferPointer {
        guard state.pointee.hasProperties else { return UnsafeRawBufferPointer(start: nil, count: 0) }
        if state.pointee.isExpanded { return state.pointee.properties.bytes }
        guard let base = state.pointee.content.base else { return UnsafeRawBufferPointer(start: nil, count: 0) }
        let start = state.pointee.propertiesStart
        return UnsafeRawBufferPointer(start: base + start, count: state.pointee.propertiesEnd - start)
    }

    /// The received body, less what was consumed. Valid until the message is reset, its next event, or the next
    /// `Engine.consume` of it.
    public final var incomingBody: UnsafeRawBufferPointer {
        let start = state.pointee.bodyStart
        guard state.pointee.hasProperties, let base = state.pointee.content.base else {
            return UnsafeRawBufferPointer(start: nil, count: 0)
        }
        return UnsafeRawBufferPointer(start: base + start, count: state.pointee.content.count - start)
    }

    /// What its content and properties take of memory, in bytes.
    public final var memorySize: Int { state.pointee.content.capacity &+ state.pointee.properties.capacity }

    /// Body bytes received so far, after decompression, consumed ones too.
    public final var bodyBytesReceived: UInt64 { state.pointee.bodyBytesReceived }

    /// True once the whole message was received.
    public final var isComplete: Bool { state.pointee.isComplete }

    /// Set by the owner while it handles `Event.began`: events tell of every part, and only what was not consumed is
    /// held and left unacknowledged.
    public final var isStreamed: Bool {
        get { state.pointee.isStreamed }
        set { state.pointee.isStreamed = newValue }
    }

    /// Of a received response: the request that it answers.
    public final var request: Message? {
        get { state.pointee.request }
        set { state.pointee.request = newValue }
    }

    /// Makes it as fresh as a new one, for pools. Not while an engine refers to it.
    ///
    /// - Parameter keep: the most bytes of memory that each of its buffers keeps.
    public final func reset(keeping keep: Int = 4096) {
        let s = state
        s.pointee.number = 0
        s.pointee.kind = .request
        s.pointee.flags = []
        s.pointee.place = .none
        s.pointee.isStarted = false
        s.pointee.isFinished = false
        s.pointee.isAbandoned = false
        s.pointee.headSent = 0
        s.pointee.bodyOffset = 0
        s.pointee.sourceIndex = 0
        s.pointee.aheadOffset = 0
        s.pointee.bodyBytesSent = 0
        s.pointee.wireSent = 0
        s.pointee.wireAcknowledged = 0
        s.pointee.queuedBytes = 0
        s.pointee.isIncoming = false
        s.pointee.isStreamed = false
        s.pointee.isComplete = false
        s.pointee.hasBegun = false
        s.pointee.isDiscarded = false
        s.pointee.isContinued = false
        s.pointee.hasLength = false
        s.pointee.hasProperties = false
        s.pointee.isExpanded = false
        s.pointee.failure = nil
        s.pointee.propertiesStart = 0
        s.pointee.propertiesEnd = 0
        s.pointee.bodyStart = 0
        s.pointee.bodyBytesReceived = 0
        s.pointee.bodyBytesConsumed = 0
        s.pointee.bodyBytesAcknowledged = 0
        s.pointee.wireReceived = 0
        s.pointee.wireConsumed = 0
        s.pointee.wireReported = 0
        forgetCursor()
        s.pointee.properties.removeAll(keepingCapacity: keep)
        s.pointee.body.removeAll(keepingCapacity: keep)
        s.pointee.content.removeAll(keepingCapacity: keep)
        if !s.pointee.sources.isEmpty { s.pointee.sources = [] }
        if s.pointee.request != nil { s.pointee.request = nil }
        if s.pointee.heldResponse != nil { s.pointee.heldResponse = nil }
        if !s.pointee.marks.isEmpty { s.pointee.marks = [] }
        if s.pointee.gzipOutput != nil { s.pointee.gzipOutput = nil }
        if s.pointee.gzipInput != nil { s.pointee.gzipInput = nil }
    }

    /// Keeps the properties of an incoming message where later frames do not move them.
    ///
    /// - Returns: false if there is no memory.
    @discardableResult
    public final func pinProperties() -> Bool {
        let s = state
        guard s.pointee.isIncoming, s.pointee.hasProperties, !s.pointee.isExpanded else { return true }
        s.pointee.properties.truncate(to: 0)
        guard s.pointee.properties.append(incomingProperties) else { return false }
        s.pointee.isExpanded = true
        return true
    }

    /// Puts a copy of `bytes`, which may lie in this message, in place of the body of a message received whole.
    ///
    /// - Returns: false, with nothing changed, if the message is not whole or there is no memory.
    public final func replaceIncomingBody(_ bytes: UnsafeRawBufferPointer) -> Bool {
        let s = state
        guard s.pointee.isIncoming, s.pointee.isComplete, s.pointee.hasProperties else { return false }
        var copy = Bytes()
        guard copy.append(bytes) else { return false }
        let start = s.pointee.bodyStart
        guard s.pointee.content.replace(at: start, s.pointee.content.count - start, with: copy.bytes) else {
            return false
        }
        s.pointee.bodyBytesReceived = UInt64(copy.count)
        return true
    }

    // MARK: Properties of either way

    /// The encoded properties that the functions below look at.
    private final var encodedProperties: UnsafeRawBufferPointer {
        state.pointee.isIncoming ? incomingProperties : state.pointee.properties.bytes
    }

    /// The value of the first property `key`, without its NUL; nil if there is none. Valid as long as the properties
    /// are.
    public final func property(_ key: UnsafeRawBufferPointer) -> UnsafeRawBufferPointer? {
        var scanner = PropertyScanner(encodedProperties)
        while let pair = scanner.next() {
            if pair.key.count == key.count, equal(pair.key, key) { return pair.value }
        }
        return nil
    }

    /// The number of properties.
    public final var propertyCount: Int {
        var scanner = PropertyScanner(encodedProperties)
        var count = 0
        while scanner.next() != nil { count += 1 }
        return count
    }

    /// The property at `index`, in the order of the encoding; nil beyond the last. Who asks for one after the other pays
    /// for each once.
    public final func property(at index: Int) -> (key: UnsafeRawBufferPointer, value: UnsafeRawBufferPointer)? {
        guard index >= 0 else { return nil }
        let encoded = encodedProperties
        let cursor = state.pointee.cursor.load(ordering: .relaxed)
        var (at, offset) = (Int(cursor >> 32), Int(cursor & 0xFFFF_FFFF))
        if at > index || offset > encoded.count { (at, offset) = (0, 0) }
        var scanner = PropertyScanner(UnsafeRawBufferPointer(rebasing: encoded[offset...]))
        while let pair = scanner.next() {
            at += 1
            guard at > index else { continue }
            if let next = UInt32(exactly: encoded.count - scanner.left) {
                state.pointee.cursor.store(UInt64(at) << 32 | UInt64(next), ordering: .relaxed)
            }
            return (pair.key, pair.value)
        }
        return nil
    }

    @inline(__always)
    private final func forgetCursor() { state.pointee.cursor.store(0, ordering: .relaxed) }

    /// Replaces the value of the first property `key`, or appends the property. Outgoing messages only. Neither text
    /// may hold a NUL or lie in this message.
    ///
    /// - Returns: false, with nothing changed, if there is no memory.
    @discardableResult
    public final func setProperty(_ key: UnsafeRawBufferPointer, _ value: UnsafeRawBufferPointer) -> Bool {
        if let old = property(key), let base = state.pointee.properties.base, let at = old.baseAddress {
            forgetCursor()
            return state.pointee.properties.replace(at: at - UnsafeRawPointer(base), old.count, with: value)
        }
        // The sum cannot overflow: both texts are in memory.
        guard state.pointee.properties.reserve(key.count + value.count + 2) else { return false }
        state.pointee.properties.append(key)
        state.pointee.properties.append(0)
        state.pointee.properties.append(value)
        state.pointee.properties.append(0)
        return true
    }

    /// Removes the first property `key`. Outgoing messages only.
    ///
    /// - Returns: false if there is none.
    @discardableResult
    public final func removeProperty(_ key: UnsafeRawBufferPointer) -> Bool {
        guard let old = property(key), let base = state.pointee.properties.base, let at = old.baseAddress else {
            return false
        }
        forgetCursor()
        let valueStart = at - UnsafeRawPointer(base)
        let start = valueStart - key.count - 1
        return state.pointee.properties.replace(
            at: start, key.count + old.count + 2, with: UnsafeRawBufferPointer(start: nil, count: 0))
    }

    private final func equal(_ a: UnsafeRawBufferPointer, _ b: UnsafeRawBufferPointer) -> Bool {
        guard let x = a.baseAddress, let y = b.baseAddress else { return a.count == b.count }
        return memcmp(x, y, a.count) == 0
    }
}
