import COpenSSL

/// Base64 (RFC 4648 §4), for secrets in and out of bytes that can be wiped.
enum Base64 {
    /// The bytes of a text with padding; nil if it is not base64 in its one canonical form.
    static func decode(_ text: some Collection<UInt8>) -> [UInt8]? {
        guard text.count % 4 == 0 else { return nil }
        var output: [UInt8] = []
        output.reserveCapacity(text.count / 4 * 3)
        var group: UInt32 = 0
        var held = 0
        var padding = 0
        for byte in text {
            if byte == UInt8(ascii: "=") {
                padding += 1
                group <<= 6
            } else {
                guard padding == 0, let value = value(of: byte) else { return nil }
                group = group << 6 | value
            }
            held += 1
            guard held == 4 else { continue }
            guard padding <= 2, padding < 1 || group & 0xFF == 0, padding < 2 || group & 0xFFFF == 0 else { return nil }
            for shift in [16, 8, 0].prefix(3 - padding) {
                output.append(UInt8(truncatingIfNeeded: group >> UInt32(shift)))
            }
            group = 0
            held = 0
        }
        return output
    }

    private static func value(of byte: UInt8) -> UInt32? {
        switch byte {
        case UInt8(ascii: "A")...UInt8(ascii: "Z"): UInt32(byte) - 65
        case UInt8(ascii: "a")...UInt8(ascii: "z"): UInt32(byte) - 71
        case UInt8(ascii: "0")...UInt8(ascii: "9"): UInt32(byte) + 4
        case UInt8(ascii: "+"): 62
        case UInt8(ascii: "/"): 63
        default: nil
        }
    }

    /// The base64 form of what is no secret, padded.
    static func text(_ bytes: some Collection<UInt8>) -> String {
        var output: [UInt8] = []
        Array(bytes).withUnsafeBytes { encode($0, into: &output) }
        return String(decoding: output, as: UTF8.self)
    }

    /// Appends the base64 form, padded.
    static func encode(_ bytes: UnsafeRawBufferPointer, into output: inout [UInt8]) {
        let size = (bytes.count + 2) / 3 * 4
        guard size > 0, let base = bytes.baseAddress, let count = Int32(exactly: bytes.count) else { return }
        withUnsafeTemporaryAllocation(of: UInt8.self, capacity: size + 1) { target in
            let written = EVP_EncodeBlock(target.baseAddress, base.assumingMemoryBound(to: UInt8.self), count)
            output.append(contentsOf: target.prefix(max(0, min(size, Int(written)))))
            OPENSSL_cleanse(target.baseAddress, size + 1)
        }
    }
}
