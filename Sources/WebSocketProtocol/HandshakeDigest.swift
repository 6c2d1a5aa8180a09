import COpenSSL

/// SHA-1 as the upgrade needs them (RFC 6455 §4.2.2).
enum HandshakeDigest {
    /// The value of Sec-WebSocket-Accept that answers a key; nil: OpenSSL refuses SHA-1.
    static func accept(key: String) -> String? {
        let input = Array(key.utf8) + Array("258EAFA5-E914-47DA-95CA-C5AB0DC85B11".utf8)
        var digest = [UInt8](repeating: 0, count: Int(EVP_MAX_MD_SIZE))
        var size: UInt32 = 0
        guard EVP_Digest(input, input.count, &digest, &size, EVP_sha1(), nil) == 1, size == 20 else { return nil }
        return Base64.text(digest.prefix(20))
    }

    /// Whether a text is the base64 form of 16 bytes: 22 letters and two padding characters.
    static func isKey(_ text: String) -> Bool {
        let bytes = Array(text.utf8)
        guard bytes.count == 24, bytes[22] == UInt8(ascii: "="), bytes[23] == UInt8(ascii: "=") else { return false }
        return bytes.prefix(22).allSatisfy { byte in
            switch byte {
            case UInt8(ascii: "0")...UInt8(ascii: "9"), UInt8(ascii: "A")...UInt8(ascii: "Z"),
                UInt8(ascii: "a")...UInt8(ascii: "z"), UInt8(ascii: "+"), UInt8(ascii: "/"):
                true
            default: false
            }
        }
    }
}
