#if canImport(Glibc)
    import Glibc
#elseif canImport(Musl)
    import Musl
#endif

/// The fragments of one message, joined. It has no memory until the first fragment comes.
struct FragmentBuffer: ~Copyable {
    private var base: UnsafeMutableRawPointer?
    private var capacity = 0
    private(set) var count = 0
    /// Follows the text of a text message over its fragments.
    var validator = UTF8Validator()

    init() {}

    deinit { free(base) }

    /// What was appended.
    var bytes: UnsafeMutableRawBufferPointer {
        UnsafeMutableRawBufferPointer(start: base, count: count)
    }

    /// Appends a fragment. `maximum` bounds what is reserved beyond need; the caller has checked that it is not passed.
    /// False: no memory; nothing was changed.
    mutating func append(_ fragment: UnsafeRawBufferPointer, maximum: Int) -> Bool {
        guard let source = fragment.baseAddress, fragment.count > 0 else { return true }
        let (needed, overflow) = count.addingReportingOverflow(fragment.count)
        guard !overflow else { return false }
        if needed > capacity {
            let doubled = capacity.multipliedReportingOverflow(by: 2)
            let wanted = doubled.overflow ? needed : max(doubled.partialValue, 1024)
            let size = max(needed, min(wanted, maximum))
            guard let grown = realloc(base, size) else { return false }
            base = grown
            capacity = size
        }
        guard let target = base else { return false }
        (target + count).copyMemory(from: source, byteCount: fragment.count)
        count = needed
        return true
    }

    /// Back to the state without memory.
    mutating func reset() {
        free(base)
        base = nil
        capacity = 0
        count = 0
        validator = UTF8Validator()
    }
}
