/// A part of an open file.
public struct FileRegion: Equatable {
    public let descriptor: Int32
    public let offset: UInt64
    public let count: UInt64

    public init(descriptor: Int32, offset: UInt64, count: UInt64) {
        self.descriptor = descriptor
        self.offset = offset
        self.count = count
    }
}
