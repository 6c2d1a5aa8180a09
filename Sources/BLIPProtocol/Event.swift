/// What one received frame led to. The message of an event is the owner's from then on, as far as the case says.
public enum Event {
    /// Nothing for the owner (yet). There may be output.
    case none
    /// The properties are there and more of the body will come: the owner may set `isStreamed`. Part of the body may be
    /// there too. Goes on with `.data` (streamed only), `.complete` or `.messageFailed`.
    case began(Message)
    /// Streamed messages only: `incomingBody` has grown.
    case data(Message)
    /// The whole message is here; of a streamed one, `incomingBody` holds what was not consumed. The engine no longer
    /// refers to it. A response has `request` set.
    case complete(Message)
    /// A response, or a request that has begun, will not be completed. The engine no longer refers to the message; it
    /// receives and drops what still comes of it. A request that has not begun never gets here: the engine itself
    /// answers it with an error response, which comes out of `nextFrame` like any other message.
    case messageFailed(Message, MessageFailure)
    /// Much comes out of the frame, and only a part of it was done (`Limits.inflatedAtOnce`): `continueFrame` goes on, before
    /// any other frame is received. All else may be called meanwhile.
    case suspended
    /// An acknowledgement came: a paused message may go on.
    case acknowledged
    /// Fatal: close the connection and call `takeAll`.
    case failed(ProtocolError)
}
