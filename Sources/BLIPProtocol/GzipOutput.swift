/// The compression of one outgoing message's body in versions 1 and 2: one gzip stream that runs over its frames.
final class GzipOutput {
    let deflater: Deflater
    /// Body bytes that were read and not yet compressed, from `offset` on.
    var input = Bytes()
    var offset = 0
    /// The body has been read to its end.
    var isInputComplete = false
    /// Bytes went in since the last flush, or it had no room.
    var mustFlush = false

    init(_ deflater: Deflater) { self.deflater = deflater }
}
