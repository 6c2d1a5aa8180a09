import COpenSSL

/// A hash that only who knows the key can make: what a cache of secrets keeps in their place (HMAC-SHA-256, RFC 2104).
public struct KeyedHash: Sendable {
    private let key: SecretBytes

    /// - Parameter key: 32 fresh random bytes.
    public init(key: [UInt8]) { self.key = SecretBytes(key) }

    /// The hash of a user name and a password; nil: OpenSSL refuses.
    public func hash(user: String, password: SecretBytes) -> [UInt8]? {
        var input = Array(user.utf8)
        input.reserveCapacity(input.count + 1 + password.count)
        // No user name has a colon.
        input.append(UInt8(ascii: ":"))
        input.append(contentsOf: password.bytes)
        defer { input.wipe() }
        var output = [UInt8](repeating: 0, count: 32)
        var size = 0
        let done = EVP_Q_mac(
            nil, "HMAC", nil, "SHA256", nil, key.bytes.baseAddress, key.count, input, input.count, &output,
            output.count, &size)
        return done != nil && size == 32 ? output : nil
    }
}
