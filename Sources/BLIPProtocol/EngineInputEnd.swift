extension Engine {
    /// Nothing comes from the peer any more, and it goes on receiving: gives back what depends on more of it. What is
    /// left in the queue is sent without waiting for acknowledgements, which cannot come.
    ///
    /// - Returns:
    ///   - requests: ours that cannot be answered any more, abandoned ones left out. Nothing more of them is sent.
    ///   - incoming: requests and responses that have begun (`Event.began`) and are incomplete.
    ///   - isCut: whether a message of the peer's was incomplete that somebody wanted.
    public func endInput() -> (requests: [Message], incoming: [Message], isCut: Bool) {
        let s = state
        s.pointee.isInputEnded = true
        settleUndecided()
        var requests: [Message] = []
        var incoming: [Message] = []
        var isCut = false
        for message in s.pointee.pending.all() where !message.state.pointee.isAbandoned { requests.append(message) }
        for message in s.pointee.incoming.all() {
            let m = message.state
            if let request = m.pointee.request { requests.append(request) }
            if let held = m.pointee.heldResponse {
                m.pointee.heldResponse = nil
                held.state.pointee.place = .none
                s.pointee.heldResponses -= 1
                s.pointee.outbox.insert(held)
            }
            guard !m.pointee.isDiscarded else { continue }
            isCut = true
            if m.pointee.hasBegun { incoming.append(message) }
            m.pointee.isDiscarded = true
        }
        if s.pointee.suspended != nil { isCut = true }
        s.pointee.suspended = nil
        s.pointee.pending.removeAll()
        s.pointee.abandonedPending = 0
        s.pointee.incoming.removeAll()
        s.pointee.acknowledgements = []
        s.pointee.heldBytes = 0
        s.pointee.partialResponses = 0
        requests += takeUnanswerable()
        for message in s.pointee.underWay.all() where message.state.pointee.place == .paused {
            s.pointee.stalledMessages -= 1
            s.pointee.pausedMessages -= 1
            s.pointee.outbox.insert(message)
        }
        return (requests, incoming, isCut)
    }

    /// Takes requests that want an answer out of what is to be sent; those of which nothing was sent are returned.
    private func takeUnanswerable() -> [Message] {
        let s = state
        var unsent: [Message] = []
        for message in s.pointee.outbox.all() where Self.wantsReply(message) {
            s.pointee.outbox.remove(message)
            uncountQueued(message.state, UInt64.max)
            if !message.state.pointee.isStarted, !message.state.pointee.isAbandoned { unsent.append(message) }
        }
        for message in s.pointee.underWay.all() where Self.wantsReply(message) {
            let m = message.state
            if m.pointee.place == .paused || m.pointee.place == .waiting { s.pointee.stalledMessages -= 1 }
            if m.pointee.place == .paused { s.pointee.pausedMessages -= 1 }
            m.pointee.place = .none
            uncountQueued(m, UInt64.max)
            s.pointee.underWay.remove(Self.key(m.pointee.number, isResponse: false))
        }
        return unsent
    }

    private static func wantsReply(_ message: Message) -> Bool {
        message.state.pointee.kind == .request && !message.state.pointee.flags.contains(.noReply)
    }
}
