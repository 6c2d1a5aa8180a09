import BLIPProtocol
import CBLIP

extension BLIPMessage {
    /// Sets the trace context; an empty state removes it.
    public func setTrace(_ parent: UnsafeRawBufferPointer, _ state: UnsafeRawBufferPointer) -> blip_status {
        guard !isFrozen else { return BLIP_ERROR_IMMUTABLE }
        guard TraceContext.isParent(parent), TraceContext.isState(state) else { return BLIP_ERROR_ARGUMENT }
        let status = set(TraceContext.parentKey.bytes, parent)
        guard status == BLIP_OK else { return status }
        guard !state.isEmpty else {
            removeProperty(TraceContext.stateKey.bytes)
            return BLIP_OK
        }
        return set(TraceContext.stateKey.bytes, state)
    }

    /// The trace context, if it has one that is well formed; a malformed state counts as none.
    public var trace: (parent: UnsafeRawBufferPointer, state: UnsafeRawBufferPointer)? {
        guard let parent = property(TraceContext.parentKey.bytes), TraceContext.isParent(parent) else { return nil }
        guard let state = property(TraceContext.stateKey.bytes), TraceContext.isState(state) else {
            return (parent, UnsafeRawBufferPointer(start: nil, count: 0))
        }
        return (parent, state)
    }

    /// Makes this message a part of the trace of another one, with a parent-id of its own.
    public func continueTrace(of other: BLIPMessage) -> blip_status {
        guard !isFrozen else { return BLIP_ERROR_IMMUTABLE }
        guard let (parent, state) = other.trace else { return BLIP_ERROR_NOT_FOUND }
        // A copy of the state: it may lie in this message.
        return TraceContext.child(of: parent).withUnsafeBytes { parent in
            [UInt8](state).withUnsafeBytes { setTrace(parent, $0) }
        }
    }

    public func beginTrace(isSampled: Bool) -> blip_status {
        TraceContext.root(isSampled: isSampled).withUnsafeBytes {
            setTrace($0, UnsafeRawBufferPointer(start: nil, count: 0))
        }
    }
}
