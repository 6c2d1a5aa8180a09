import CBLIP

/// Immutable bytes at a fixed address: what a `blip_slice` given to the program points to.
public final class Text: @unchecked Sendable {
    private let storage: UnsafeMutableRawBufferPointer

    public convenience init(_ bytes: UnsafeRawBufferPointer) {
        self.init(count: bytes.count) { $0.copyMemory(from: bytes) }
    }

    public convenience init(_ string: String) {
        var string = string
        self.init(string.withUTF8 { [UInt8]($0) })
    }

    public convenience init(_ bytes: [UInt8]) {
        self.init(count: bytes.count) { target in bytes.withUnsafeBytes { target.copyMemory(from: $0) } }
    }

    private init(count: Int, _ fill: (UnsafeMutableRawBufferPointer) -> Void) {
        storage = .allocate(byteCount: max(count, 1), alignment: 1)
        self.count = count
        fill(storage)
    }

    deinit { storage.deallocate() }

    public let count: Int

    public var slice: blip_slice { blip_slice(data: UnsafeRawPointer(storage.baseAddress), size: count) }

    public var string: String {
        String(decoding: UnsafeRawBufferPointer(rebasing: UnsafeRawBufferPointer(storage)[..<count]), as: UTF8.self)
    }
}
