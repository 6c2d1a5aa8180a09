import CSystem
import Glibc

/// What went wrong with a socket, a name lookup, a file or TLS, with a text of one line that names what it concerns.
public struct TransportError: Error, Sendable, Equatable, CustomStringConvertible {
    /// Where `code` comes from.
    public enum Domain: Sendable {
        /// `code` is an errno.
        case posix
        /// `code` is an X.509 verify error (kind `.certificate`) or the reason of OpenSSL's first error.
        case tls
        /// `code` is an EAI value of getaddrinfo.
        case dns
        /// A time limit passed; `code` is ETIMEDOUT.
        case timeout
        /// This side or its event loop ended; `code` is 0.
        case closed
    }

    /// What a program would tell apart.
    public enum Kind: Sendable {
        case refused
        case unreachable
        /// The connection was broken by the peer or the network.
        case reset
        /// The peer ended a TLS stream without close_notify, or in the middle of a handshake.
        case ended
        case timedOut
        case resolve
        /// The peer's certificate is not trusted, or is for another name.
        case certificate
        case tls
        /// A certificate, key or CA file of ours cannot be used.
        case tlsSetup
        case addressInUse
        case permission
        /// Descriptors, memory or threads ran out.
        case resources
        case file
        case other
    }

    public let domain: Domain
    public let kind: Kind
    public let code: Int32
    /// One line, such as "connect to 127.0.0.1:9: Connection refused".
    public let text: String

    public init(domain: Domain, kind: Kind, code: Int32, text: String) {
        self.domain = domain
        self.kind = kind
        self.code = code
        self.text = Self.oneLine(text)
    }

    /// Names come from outside: control characters in them would break lines of a log.
    private static func oneLine(_ text: String) -> String {
        let isControl = { (scalar: Unicode.Scalar) in scalar.value < 0x20 || (0x7f..<0xa0).contains(scalar.value) }
        guard text.unicodeScalars.contains(where: isControl) else { return text }
        var clean = String.UnicodeScalarView()
        for scalar in text.unicodeScalars { clean.append(isControl(scalar) ? "?" : scalar) }
        return String(clean)
    }

    public var description: String { text }

    /// An error of a system call: `text` is "`subject`: " and the system's words.
    public static func posix(_ code: Int32, _ subject: String) -> TransportError {
        TransportError(domain: .posix, kind: kind(of: code), code: code, text: "\(subject): \(words(for: code))")
    }

    /// The system's words for an errno.
    static func words(for code: Int32) -> String {
        withUnsafeTemporaryAllocation(of: CChar.self, capacity: 128) { buffer in
            guard let base = buffer.baseAddress else { return "error \(code)" }
            csystem_error_text(code, base, buffer.count)
            return String(cString: base)
        }
    }

    private static func kind(of code: Int32) -> Kind {
        switch code {
        case ECONNREFUSED: .refused
        case EHOSTUNREACH, ENETUNREACH, ENETDOWN, EHOSTDOWN, EADDRNOTAVAIL, EAFNOSUPPORT: .unreachable
        case ECONNRESET, EPIPE, ECONNABORTED, ENOTCONN: .reset
        case ETIMEDOUT: .timedOut
        case EADDRINUSE: .addressInUse
        case EACCES, EPERM: .permission
        case EMFILE, ENFILE, ENOMEM, ENOBUFS, EAGAIN, ENOSPC: .resources
        case ENOENT, ENOTDIR, ELOOP, ENAMETOOLONG, EISDIR, EROFS, ENOTSOCK: .file
        default: .other
        }
    }
}
