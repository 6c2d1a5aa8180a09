/// Bearer tokens (RFC 6750 §2.1).
public enum BearerToken {
    /// Whether a text can be sent as a token: the characters of a token68, one at least.
    public static func isValid(_ token: some Collection<UInt8>) -> Bool {
        let body = token.prefix { byte in
            switch byte {
            case UInt8(ascii: "0")...UInt8(ascii: "9"), UInt8(ascii: "A")...UInt8(ascii: "Z"),
                UInt8(ascii: "a")...UInt8(ascii: "z"):
                true
            default: "-._~+/".utf8.contains(byte)
            }
        }
        return !body.isEmpty && token.dropFirst(body.count).allSatisfy { $0 == UInt8(ascii: "=") }
    }

    /// The value of an Authorization header; nil if the token cannot be sent.
    public static func header(_ token: SecretBytes) -> SecretBytes? {
        guard isValid(token.bytes) else { return nil }
        var value = Array("Bearer ".utf8)
        value.reserveCapacity(value.count + token.count)
        value.append(contentsOf: token.bytes)
        return SecretBytes(taking: &value)
    }
}
