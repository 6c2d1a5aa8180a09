/// The bytes of one run, taken from the front; when they are used up, everything is zero.
struct Input {
    private let bytes: UnsafeRawBufferPointer
    private var at = 0

    init(_ data: UnsafePointer<UInt8>?, _ size: Int) {
        bytes = UnsafeRawBufferPointer(start: data, count: size)
    }

    var isEmpty: Bool { at >= bytes.count }
    var left: Int { bytes.count - at }

    mutating func byte() -> UInt8 {
        guard at < bytes.count else { return 0 }
        defer { at += 1 }
        return bytes[at]
    }

    mutating func word() -> Int { Int(byte()) | Int(byte()) << 8 }

    mutating func flag() -> Bool { byte() & 1 != 0 }

    /// A number below `bound`, which is at most 256.
    mutating func below(_ bound: Int) -> Int { Int(byte()) % bound }

    /// At most so many of the bytes.
    mutating func take(_ count: Int) -> [UInt8] {
        let taken = min(max(0, count), left)
        defer { at += taken }
        return Array(UnsafeRawBufferPointer(rebasing: bytes[at..<at + taken]))
    }

    mutating func rest() -> [UInt8] { take(left) }
}
