/// Takes one HTTP/1.x head off the start of a buffer (RFC 9112), strictly.
public struct HTTPHeadParser: Sendable {
    /// Which kind of head is expected.
    public enum Kind: Sendable {
        case request
        case response
    }
    /// `maximum`: bytes of the whole head, its empty line included.
    public init(_ kind: Kind, maximum: Int = 16384) {}

    /// `bytes` starts with the head's first byte in every call: as long as the answer is `.incomplete`, call again with
    /// the same bytes and more behind them. What was looked at is not looked at again.
    public mutating func feed(_ bytes: UnsafeRawBufferPointer) -> HTTPHeadEvent { .incomplete }
}
