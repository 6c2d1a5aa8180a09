import COpenSSL

/// Bytes that nobody shall see: passwords, tokens, cookies, and what is made of them. They are overwritten when the last
/// holder lets go, and no description shows them.
public final class SecretBytes: @unchecked Sendable {
    // Sendable: nothing is changed after `init`.
    private let memory: UnsafeMutableRawBufferPointer

    /// A copy of `bytes`; wiping those is the caller's.
    public init(_ bytes: some Collection<UInt8>) {
        memory = .allocate(byteCount: max(1, bytes.count), alignment: 1)
        memory[0] = 0
        memory.copyBytes(from: bytes)
        count = bytes.count
    }

    /// The UTF-8 of `text`.
    public convenience init(_ text: String) { self.init(text.utf8) }

    /// Takes the bytes over and overwrites them where they were.
    public convenience init(taking bytes: inout [UInt8]) {
        self.init(bytes)
        bytes.wipe()
    }

    deinit {
        OPENSSL_cleanse(memory.baseAddress, memory.count)
        memory.deallocate()
    }

    /// How many bytes there are.
    public let count: Int

    /// The bytes, valid as long as this object.
    public var bytes: UnsafeRawBufferPointer { HTTPSyntax.part(UnsafeRawBufferPointer(memory), 0, count) }

    /// Whether both have the same bytes, in a time that depends on their lengths alone.
    public func equals(_ other: SecretBytes) -> Bool {
        count == other.count && CRYPTO_memcmp(memory.baseAddress, other.memory.baseAddress, count) == 0
    }
}

extension SecretBytes: CustomStringConvertible, CustomDebugStringConvertible, CustomReflectable {
    /// Never the bytes.
    public var description: String { "(secret)" }
    /// Never the bytes.
    public var debugDescription: String { description }
    /// Without children.
    public var customMirror: Mirror { Mirror(self, children: []) }
}

extension [UInt8] {
    /// Overwrites the bytes in a way that no compiler leaves out, and empties the array. Of an array that shares its
    /// memory with another one, the other keeps them.
    public mutating func wipe() {
        withUnsafeMutableBytes { OPENSSL_cleanse($0.baseAddress, $0.count) }
        removeAll(keepingCapacity: false)
    }
}
