import COpenSSL

/// The hash of a Digest challenge (RFC 7616 §3.3).
enum DigestAlgorithm: String, Sendable {
    case md5 = "md5"
    case sha256 = "sha-256"
    case sha512_256 = "sha-512-256"

    /// As it is written in headers.
    var name: String { rawValue.uppercased() }

    /// The better one is the larger.
    var strength: Int {
        switch self {
        case .md5: 1
        case .sha512_256: 2
        case .sha256: 3
        }
    }

    /// The hash of parts with colons between them, in lower-case hexadecimal; nil: OpenSSL refuses the algorithm.
    func hash(_ parts: [UnsafeRawBufferPointer]) -> [UInt8]? {
        let function =
            switch self {
            case .md5: EVP_md5()
            case .sha256: EVP_sha256()
            case .sha512_256: EVP_sha512_256()
            }
        guard let context = EVP_MD_CTX_new() else { return nil }
        defer { EVP_MD_CTX_free(context) }
        guard EVP_DigestInit_ex(context, function, nil) == 1 else { return nil }
        for (index, part) in parts.enumerated() {
            if index > 0, EVP_DigestUpdate(context, ":", 1) != 1 { return nil }
            if part.count > 0, EVP_DigestUpdate(context, part.baseAddress, part.count) != 1 { return nil }
        }
        var digest = [UInt8](repeating: 0, count: Int(EVP_MAX_MD_SIZE))
        defer { digest.wipe() }
        var size: UInt32 = 0
        guard EVP_DigestFinal_ex(context, &digest, &size) == 1 else { return nil }
        let digits = Array("0123456789abcdef".utf8)
        return digest.prefix(Int(size)).flatMap { [digits[Int($0 >> 4)], digits[Int($0 & 15)]] }
    }

    /// The same for texts.
    func hash(_ parts: [UInt8]...) -> [UInt8]? { hash(parts: parts) }

    func hash(parts: [[UInt8]]) -> [UInt8]? {
        var views: [SecretBytes] = []
        for part in parts { views.append(SecretBytes(part)) }
        return withExtendedLifetime(views) { hash(views.map(\.bytes)) }
    }
}
