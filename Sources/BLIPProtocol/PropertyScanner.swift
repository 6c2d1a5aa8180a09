#if canImport(Glibc)
    import Glibc
#elseif canImport(Musl)
    import Musl
#endif

/// Walks over encoded properties: key NUL value NUL …; ends early at what is not a whole pair.
struct PropertyScanner {
    private var at: UnsafeRawPointer?
    /// Bytes that were not walked over.
    private(set) var left: Int

    @inline(__always)
    init(_ encoded: UnsafeRawBufferPointer) {
        at = encoded.baseAddress
        left = encoded.count
    }

    @inline(__always)
    mutating func next() -> (key: UnsafeRawBufferPointer, value: UnsafeRawBufferPointer)? {
        guard let key = text(), let value = text() else { return nil }
        return (key, value)
    }

    /// The next text without its NUL.
    @inline(__always)
    mutating func text() -> UnsafeRawBufferPointer? {
        guard left > 0, let start = at, let end = memchr(start, 0, left) else { return nil }
        let size = UnsafeRawPointer(end) - start
        at = start + size + 1
        left -= size + 1
        return UnsafeRawBufferPointer(start: start, count: size)
    }
}
