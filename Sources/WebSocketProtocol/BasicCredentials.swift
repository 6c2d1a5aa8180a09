/// User name and password as the Basic scheme sends them (RFC 7617).
public enum BasicCredentials {
    /// The value of an Authorization header; nil if the user name has a colon, or one of them a control character.
    public static func header(user: String, password: SecretBytes) -> SecretBytes? {
        guard !user.utf8.contains(UInt8(ascii: ":")), !user.utf8.contains(where: isControl),
            !password.bytes.contains(where: isControl)
        else { return nil }
        var pair = Array(user.utf8)
        pair.reserveCapacity(pair.count + 1 + password.count)
        pair.append(UInt8(ascii: ":"))
        pair.append(contentsOf: password.bytes)
        var value = Array("Basic ".utf8)
        value.reserveCapacity(value.count + (pair.count + 2) / 3 * 4)
        pair.withUnsafeBytes { Base64.encode($0, into: &value) }
        pair.wipe()
        return SecretBytes(taking: &value)
    }

    /// What a client has sent; nil if it is not the base64 of UTF-8 with a colon, free of control characters.
    public static func read(_ credentials: HTTPChallenge) -> (user: String, password: SecretBytes)? {
        guard credentials.scheme == "basic", let token = credentials.token68,
            var pair = Base64.decode(token.utf8)
        else { return nil }
        defer { pair.wipe() }
        let isValid = pair.withUnsafeBytes { UTF8Validator.isValid($0) }
        guard isValid, !pair.contains(where: isControl), let colon = pair.firstIndex(of: UInt8(ascii: ":")) else {
            return nil
        }
        return (String(decoding: pair[..<colon], as: UTF8.self), SecretBytes(pair[(colon + 1)...]))
    }

    /// What neither part may have (RFC 7617 §2).
    static func isControl(_ byte: UInt8) -> Bool { byte < 0x20 || byte == 0x7F }
}
