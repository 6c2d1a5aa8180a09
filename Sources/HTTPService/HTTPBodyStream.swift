/// A response body that is produced as the client takes it.
open class HTTPBodyStream {
    public init() {}

    /// Bytes of the whole body; nil if that is known only at its end.
    open var length: UInt64? { nil }

    /// A part of a file that is due next and may be sent without passing through memory; nil: call `read`.
    open var region: FileRegion? { nil }

    /// So many bytes of `region` were sent.
    open func advance(_ count: Int) {}

    /// Everything was sent; known early only by bodies with regions.
    open var isAtEnd: Bool { false }

    /// Puts the next bytes at the buffer's start: how many; 0 at the end; nil if the body cannot be completed.
    open func read(into buffer: UnsafeMutableRawBufferPointer) -> Int? { 0 }
}
