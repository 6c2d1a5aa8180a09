import CZlib

/// What is left of a frame of which more comes out than is inflated at once.
final class SuspendedFrame {
    let part: FramePart
    /// Version 3; nil: the body of a message of version 1 or 2, whose inflater knows all there is to know.
    var progress: InflationProgress?
    /// Where the content goes; nil: nowhere.
    var message: Message?
    /// What the message will fail with.
    var failure: MessageFailure?
    /// Something of it went into the message.
    var hasGrown = false
    /// What is not inflated yet.
    private var rest: Bytes?

    init(_ part: FramePart, _ progress: InflationProgress? = nil) {
        self.part = part
        self.progress = progress
    }

    /// Copies what is left of the inflater's input, unless it was copied before. False: there is no memory.
    func keep(_ input: UnsafeMutablePointer<z_stream>) -> Bool {
        guard rest == nil, let from = input.pointee.next_in, input.pointee.avail_in > 0 else { return true }
        var copy = Bytes()
        guard copy.append(UnsafeRawPointer(from), Int(input.pointee.avail_in)) else { return false }
        input.pointee.next_in = copy.base?.assumingMemoryBound(to: Bytef.self)
        rest = consume copy
        return true
    }
}
