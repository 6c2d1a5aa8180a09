/// A part of an outgoing body that is not held in `Message.body`: borrowed memory, a file range, a pulled stream.
///
/// Called by the engine, on its thread, whenever a frame is cut.
open class BodySource {
    /// For subclasses.
    public init() {}

    /// Bytes still to come if that is known; nil: unknown until the end. A part that says a number must deliver it,
    /// or fail.
    open var remaining: UInt64? { nil }

    /// Fills `buffer`, which is never empty, as far as it can without waiting.
    open func read(into buffer: UnsafeMutableRawBufferPointer) -> BodyRead { .end(0) }
}
