/// What a `BodySource` answers.
public enum BodyRead: Sendable {
    /// So many bytes were written, at least one; more may follow.
    case bytes(Int)
    /// So many bytes were written, maybe none; they are the last.
    case end(Int)
    /// Nothing now: `Engine.resume` will be called when there is.
    case wait
    /// The body cannot be completed.
    case failed
}
