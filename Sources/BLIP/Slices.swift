import CBLIP
import Glibc

extension blip_slice {
    public static var empty: blip_slice { blip_slice(data: nil, size: 0) }

    public init(_ bytes: UnsafeRawBufferPointer) {
        self.init(data: bytes.baseAddress, size: bytes.count)
    }

    /// The bytes, or nil if the slice claims bytes at NULL or more than an address space holds.
    @inline(__always)
    public var bytes: UnsafeRawBufferPointer? {
        if size == 0 { return UnsafeRawBufferPointer(start: nil, count: 0) }
        guard let data, size > 0, size <= Int.max / 2 else { return nil }
        return UnsafeRawBufferPointer(start: data, count: Int(size))
    }

    /// The bytes as text: UTF-8 without an embedded NUL. The status says what is wrong.
    @inline(__always)
    public func text(_ body: (UnsafeRawBufferPointer) -> blip_status) -> blip_status {
        guard let bytes else { return BLIP_ERROR_ARGUMENT }
        guard bytes.isText else { return BLIP_ERROR_TEXT }
        return body(bytes)
    }

    /// The same as a String.
    public func string(_ body: (String) -> blip_status) -> blip_status {
        text { body(String(decoding: $0, as: UTF8.self)) }
    }
}

extension UnsafeRawBufferPointer {
    /// UTF-8 without NUL.
    @inline(__always)
    var isText: Bool {
        var index = 0
        let count = count
        guard let base = baseAddress else { return true }
        while index + 8 <= count {
            let word = base.loadUnaligned(fromByteOffset: index, as: UInt64.self)
            // A byte that is zero or has its upper bit set.
            let zero = (word &- 0x0101_0101_0101_0101) & ~word & 0x8080_8080_8080_8080
            if zero | (word & 0x8080_8080_8080_8080) != 0 { return isTextSlowly }
            index += 8
        }
        while index < count {
            let byte = base.load(fromByteOffset: index, as: UInt8.self)
            if byte == 0 || byte & 0x80 != 0 { return isTextSlowly }
            index += 1
        }
        return true
    }

    @inline(never)
    private var isTextSlowly: Bool {
        !contains(0) && String(validating: self, as: UTF8.self) != nil
    }

    @inline(__always)
    func equals(_ other: UnsafeRawBufferPointer) -> Bool {
        guard count == other.count else { return false }
        guard count > 0, let a = baseAddress, let b = other.baseAddress else { return count == 0 }
        return memcmp(a, b, count) == 0
    }
}

extension StaticString {
    /// The characters as they lie in the program; valid for ever.
    @inline(__always)
    var bytes: UnsafeRawBufferPointer { UnsafeRawBufferPointer(start: utf8Start, count: utf8CodeUnitCount) }
}
