import CBLIP

/// What a connection has while it says goodbye by messages: draining, or the "Bye" of versions 1 and 2.
final class Farewell {
    /// When a connection that drains closes whatever is under way; nanoseconds.
    var deadline = UInt64.max
    /// What a connection that has drained closes with.
    var closeCode: UInt16 = 1000
    /// Ours, while it waits for its answer.
    var request: BLIPMessage?
    /// Who wants to know whether the peer agrees.
    var handler: Handler<blip_bye_fn>?
    /// The peer's, while the program has not decided.
    var peerRequest: BLIPMessage?
    /// One side has said "Bye" and the other agreed.
    var isAgreed = false
    /// The peer said it and will end the transport.
    var isPeerLeaving = false
    /// We said it, whatever the answer.
    var isSaid = false
    /// The peer has ended its direction of the stream; the connection goes on until all is sent.
    var hasPeerEnded = false
    /// What the connection's end is reported as when it has drained.
    var failure: Failure?
}
