/// Writes bits as deflate wants them: the first bit is the lowest of the first byte (RFC 1951 §3.1.1).
///
/// It stores eight bytes at a time, so that many must be writable behind the last whole byte.
struct BitWriter {
    /// Where the bits go that are not stored yet.
    private(set) var next: UnsafeMutableRawPointer
    private var bits: UInt64 = 0
    private var count: UInt64 = 0

    /// - Parameter next: where the first byte goes.
    init(_ next: UnsafeMutableRawPointer) { self.next = next }

    /// Adds the `size` low bits of `value`, whose others must be 0; at most 56 between two calls of `store`.
    @inline(__always)
    mutating func add(_ value: UInt64, _ size: UInt64) {
        bits |= value &<< count
        count &+= size
    }

    /// Stores all whole bytes.
    @inline(__always)
    mutating func store() {
        next.storeBytes(of: bits.littleEndian, as: UInt64.self)
        next += Int(truncatingIfNeeded: count &>> 3)
        bits &>>= count & 56
        count &= 7
    }

    /// Stores everything, with bits of 0 up to the end of the byte.
    @inline(__always)
    mutating func align() {
        count = (count &+ 7) & ~7
        store()
    }

    /// Moves on behind `size` bytes that the caller has put at `next`. Only after `align`.
    @inline(__always)
    mutating func skip(_ size: Int) { next += size }
}
