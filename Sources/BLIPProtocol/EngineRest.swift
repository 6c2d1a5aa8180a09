/// All that an engine with nothing under way has to remember: another one goes on from it.
public struct EngineRest: Sendable {
    let nextNumber: UInt64
    let nextIncomingNumber: UInt64
    let sendChecksum: UInt32
    let receiveChecksum: UInt32
}

extension Engine {
    /// What another engine can go on from; nil if something is under way, or the peer's compressor counts on what this
    /// one has seen. To be asked between calls; afterwards this engine is not used any more.
    public func rest() -> EngineRest? {
        let s = state
        guard isIdle, s.pointee.pending.count == 0, s.pointee.inflater == nil, s.pointee.undecided == nil,
            s.pointee.heldResponses == 0, s.pointee.stalledMessages == 0
        else { return nil }
        return EngineRest(
            nextNumber: s.pointee.nextNumber, nextIncomingNumber: s.pointee.nextIncomingNumber,
            sendChecksum: s.pointee.sendChecksum, receiveChecksum: s.pointee.receiveChecksum)
    }

    /// Goes on where another engine has rested, with its counters. On a new engine.
    public func goOn(from rest: EngineRest, _ counters: EngineCounters) {
        state.pointee.nextNumber = rest.nextNumber
        state.pointee.nextIncomingNumber = rest.nextIncomingNumber
        state.pointee.sendChecksum = rest.sendChecksum
        state.pointee.receiveChecksum = rest.receiveChecksum
        state.pointee.counters = counters
    }
}
