/// A part of an open file that the kernel may send by itself.
public struct StreamRegion: Sendable {
    public let descriptor: Int32
    public let offset: Int64
    public let count: Int

    public init(descriptor: Int32, offset: Int64, count: Int) {
        self.descriptor = descriptor
        self.offset = offset
        self.count = count
    }
}
