import COpenSSL

/// A salted hash of a password, made with scrypt (RFC 7914): slow and hungry for memory on purpose.
public struct PasswordHash: Sendable {
    /// Memory that one hash takes, at most: 64 MiB.
    static let maximumMemory: UInt64 = 64 << 20
    private static let size = 32

    private let logarithm: UInt64
    private let blocks: UInt64
    private let lanes: UInt64
    private let salt: [UInt8]
    private let key: SecretBytes

    /// Hashes a password; takes about 16 MiB and 50 ms of a processor. nil: OpenSSL refuses.
    /// - Parameter salt: 16 fresh random bytes.
    public init?(_ password: SecretBytes, salt: [UInt8]) {
        self.init(password, salt: salt, logarithm: 14, blocks: 8, lanes: 1)
    }

    init?(_ password: SecretBytes, salt: [UInt8], logarithm: UInt64, blocks: UInt64, lanes: UInt64) {
        guard let key = Self.derive(password, salt, logarithm, blocks, lanes, Self.size) else { return nil }
        self.logarithm = logarithm
        self.blocks = blocks
        self.lanes = lanes
        self.salt = salt
        self.key = key
    }

    /// Reads the text that `description` gives: `$scrypt$ln=14,r=8,p=1$salt$hash`, salt and hash in base64 without
    /// padding. nil: it is something else, or would take more than 64 MiB.
    public init?(text: String) {
        let parts = text.utf8.split(separator: UInt8(ascii: "$"), omittingEmptySubsequences: false)
        guard parts.count == 5, parts[0].isEmpty, parts[1].elementsEqual("scrypt".utf8) else { return nil }
        var numbers: [UInt64] = []
        for (field, name) in zip(
            parts[2].split(separator: UInt8(ascii: ","), omittingEmptySubsequences: false), ["ln=", "r=", "p="])
        {
            guard field.starts(with: name.utf8), field.count <= 6,
                let number = HTTPSyntax.number(String(Substring(field.dropFirst(name.utf8.count))))
            else { return nil }
            numbers.append(number)
        }
        guard numbers.count == 3, text.utf8.count(where: { $0 == UInt8(ascii: ",") }) == 2 else { return nil }
        let (logarithm, blocks, lanes) = (numbers[0], numbers[1], numbers[2])
        guard (10...20).contains(logarithm), (1...32).contains(blocks), (1...8).contains(lanes),
            (128 * blocks) << logarithm <= Self.maximumMemory,
            let salt = Self.decode(parts[3]), (8...64).contains(salt.count), var key = Self.decode(parts[4]),
            (16...64).contains(key.count)
        else { return nil }
        self.logarithm = logarithm
        self.blocks = blocks
        self.lanes = lanes
        self.salt = salt
        self.key = SecretBytes(taking: &key)
    }

    /// Whether this is the password: as slow as the hash was made, compared in constant time.
    public func check(_ password: SecretBytes) -> Bool {
        guard let other = Self.derive(password, salt, logarithm, blocks, lanes, key.count) else { return false }
        return key.equals(other)
    }

    /// The hash as a text, to be kept in a file.
    public var text: String {
        func encode(_ bytes: UnsafeRawBufferPointer) -> String {
            String(Substring(Base64.text(bytes).utf8.prefix { $0 != UInt8(ascii: "=") }))
        }
        return "$scrypt$ln=\(logarithm),r=\(blocks),p=\(lanes)$\(salt.withUnsafeBytes(encode))$\(encode(key.bytes))"
    }

    private static func decode(_ text: some Collection<UInt8>) -> [UInt8]? {
        let padding = [UInt8](repeating: UInt8(ascii: "="), count: (4 - text.count % 4) % 4)
        guard padding.count < 3, !text.contains(UInt8(ascii: "=")) else { return nil }
        return Base64.decode(Array(text) + padding)
    }

    private static func derive(
        _ password: SecretBytes, _ salt: [UInt8], _ logarithm: UInt64, _ blocks: UInt64, _ lanes: UInt64, _ size: Int
    ) -> SecretBytes? {
        var output = [UInt8](repeating: 0, count: size)
        defer { output.wipe() }
        // What is empty still needs an address.
        let bytes = password.count > 0 ? password.bytes.baseAddress : nil
        let done = withUnsafeTemporaryAllocation(of: CChar.self, capacity: 1) { nothing in
            EVP_PBE_scrypt(
                bytes?.assumingMemoryBound(to: CChar.self) ?? UnsafePointer(nothing.baseAddress), password.count, salt,
                salt.count, 1 << logarithm, blocks, lanes, maximumMemory + (1 << 20), &output, output.count)
        }
        guard done == 1 else { return nil }
        return SecretBytes(output)
    }
}
