import CBLIP
import Glibc

/// Immutable bytes at a fixed address: what a `blip_slice` given to the program points to.
public final class Text: @unchecked Sendable {
    private let storage: UnsafeMutableRawPointer
    public let count: Int

    public init(_ bytes: UnsafeRawBufferPointer) {
        count = bytes.count
        storage = .allocate(byteCount: max(count, 1), alignment: 1)
        if let base = bytes.baseAddress { storage.copyMemory(from: base, byteCount: count) }
    }

    public convenience init(_ string: String) {
        var string = string
        self.init(string.withUTF8 { [UInt8]($0) })
    }

    public init(_ bytes: [UInt8]) {
        count = bytes.count
        storage = .allocate(byteCount: max(count, 1), alignment: 1)
        bytes.withUnsafeBytes { if let base = $0.baseAddress { storage.copyMemory(from: base, byteCount: $0.count) } }
    }

    deinit { storage.deallocate() }

    /// Overwrites the bytes; for the last holder of a secret.
    func wipe() { explicit_bzero(storage, count) }

    public var slice: blip_slice { blip_slice(data: UnsafeRawPointer(storage), size: count) }

    func equals(_ other: Text) -> Bool {
        guard let own = slice.bytes, let others = other.slice.bytes else { return false }
        return own.equals(others)
    }

    public var string: String {
        String(decoding: UnsafeRawBufferPointer(start: storage, count: count), as: UTF8.self)
    }
}
