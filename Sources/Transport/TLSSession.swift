import COpenSSL
import Glibc

/// The TLS of one stream: OpenSSL's object, its windows on the encrypted bytes, and what is left in them.
final class TLSSession {
    enum Outcome {
        case done(Int)
        /// More encrypted bytes are needed.
        case wantsInput
        /// The output window is full.
        case wantsOutput
        /// The peer sent close_notify.
        case ended
        case failed(TransportError)
    }

    let isServer: Bool
    /// Whom errors are about: the server's name, or the peer's address.
    let peer: String
    /// The server side of a handshake has nothing to say first, the client's has.
    var hasStarted = false
    var isSecured = false
    /// Encrypted bytes that came and were not read by OpenSSL yet, between turns.
    var leftover = ByteQueue()
    private let context: TLSContext
    private let ssl: OpaquePointer
    private let pipe: UnsafeMutablePointer<TLSPipe>
    /// close_notify was sent, or must not be any more.
    private(set) var hasSentEnd = false

    init(context: TLSContext, serverName: String?, isServer: Bool, peer: String) throws(TransportError) {
        guard context.isServer == isServer else {
            throw TLSContext.setupError("TLS context for the other side of a connection")
        }
        ERR_clear_error()
        guard let ssl = SSL_new(context.handle), let method = TLSPipe.method, let bio = BIO_new(method) else {
            throw TLSContext.setupError("TLS with \(peer)", reading: true)
        }
        self.context = context
        self.isServer = isServer
        self.peer = peer
        self.ssl = ssl
        pipe = .allocate(capacity: 1)
        pipe.initialize(to: TLSPipe())
        BIO_set_data(bio, pipe)
        SSL_set_bio(ssl, bio, bio)
        if isServer {
            SSL_set_accept_state(ssl)
        } else {
            SSL_set_connect_state(ssl)
            try configureClient(serverName)
        }
    }

    deinit {
        SSL_free(ssl)
        pipe.deallocate()
    }

    private func configureClient(_ serverName: String?) throws(TransportError) {
        guard let name = serverName, !name.isEmpty else {
            guard context.verifies else { return }
            throw TLSContext.setupError("TLS with \(peer): no server name to compare the certificate with")
        }
        let isLiteral = SocketAddress(literal: name, port: 0) != nil
        var accepted = true
        if isLiteral {
            let digits = name.prefix { $0 != "%" }
            accepted = X509_VERIFY_PARAM_set1_ip_asc(SSL_get0_param(ssl), String(digits)) == 1
        } else {
            // A dot at the end is the root of the DNS, and no part of names in certificates or in SNI.
            let host = name.hasSuffix(".") ? String(name.dropLast()) : name
            SSL_set_hostflags(
                ssl, UInt32(X509_CHECK_FLAG_NO_PARTIAL_WILDCARDS | X509_CHECK_FLAG_NEVER_CHECK_SUBJECT))
            accepted = SSL_set1_host(ssl, host) == 1 && copenssl_set_server_name(ssl, host) == 1
            if accepted, let session = context.takeSession(for: host) {
                SSL_set_session(ssl, session)
                SSL_SESSION_free(session)
            }
        }
        if !accepted { throw TLSContext.setupError("TLS with \(peer): \(name) cannot be a server's name") }
    }

    // MARK: Windows

    /// Sets where encrypted bytes come from; they must stay until `unread` is asked.
    func setInput(_ bytes: UnsafeMutableRawBufferPointer) {
        pipe.pointee.input = UnsafeRawPointer(bytes.baseAddress)
        pipe.pointee.inputCount = bytes.count
    }

    /// The encrypted bytes that OpenSSL did not take.
    var unread: UnsafeRawBufferPointer {
        UnsafeRawBufferPointer(start: pipe.pointee.input, count: pipe.pointee.inputCount)
    }

    func setOutput(_ bytes: UnsafeMutableRawBufferPointer) {
        pipe.pointee.output = bytes.baseAddress
        pipe.pointee.outputCount = 0
        pipe.pointee.outputCapacity = bytes.count
    }

    /// How many encrypted bytes stand at the output window's start; counts them as taken.
    func takeOutput() -> Int {
        let count = pipe.pointee.outputCount
        pipe.pointee.outputCount = 0
        return count
    }

    // MARK: OpenSSL

    func handshake() -> Outcome {
        ERR_clear_error()
        let result = SSL_do_handshake(ssl)
        if result == 1 {
            isSecured = true
            return .done(0)
        }
        return outcome(of: result)
    }

    func read(_ target: UnsafeMutableRawPointer, _ capacity: Int) -> Outcome {
        ERR_clear_error()
        var count = 0
        let result = SSL_read_ex(ssl, target, capacity, &count)
        return result == 1 ? .done(count) : outcome(of: result)
    }

    func write(_ source: UnsafeRawPointer, _ size: Int) -> Outcome {
        ERR_clear_error()
        var count = 0
        let result = SSL_write_ex(ssl, source, size, &count)
        return result == 1 ? .done(count) : outcome(of: result)
    }

    /// Puts close_notify into the output window, once.
    func sendEnd() {
        guard isSecured, !hasSentEnd else { return }
        hasSentEnd = true
        ERR_clear_error()
        _ = SSL_shutdown(ssl)
        ERR_clear_error()
    }

    private func outcome(of result: Int32) -> Outcome {
        switch SSL_get_error(ssl, result) {
        case SSL_ERROR_WANT_READ: return .wantsInput
        case SSL_ERROR_WANT_WRITE: return .wantsOutput
        case SSL_ERROR_ZERO_RETURN: return .ended
        default:
            // After a fatal error close_notify would be wrong.
            hasSentEnd = true
            return .failed(failure())
        }
    }

    private func failure() -> TransportError {
        let code = ERR_get_error()
        ERR_clear_error()
        let verdict = SSL_get_verify_result(ssl)
        let alert = copenssl_alert_of(code)
        if alert != 0 {
            let words = copenssl_alert_text(alert).map { String(cString: $0) } ?? "alert \(alert)"
            return TransportError(
                domain: .tls, kind: .tls, code: alert, text: "TLS with \(peer): the peer refused: \(words)")
        }
        if verdict != Int(X509_V_OK), !isSecured {
            let words = X509_verify_cert_error_string(verdict).map { String(cString: $0) } ?? "not trusted"
            return TransportError(
                domain: .tls, kind: .certificate, code: Int32(clamping: verdict),
                text: "certificate of \(peer): \(words) (verify error \(verdict))")
        }
        let words = ERR_reason_error_string(code).map { String(cString: $0) } ?? "error \(code)"
        return TransportError(
            domain: .tls, kind: .tls, code: Int32(copenssl_reason(code)), text: "TLS with \(peer): \(words)")
    }

    // MARK: What was agreed

    var version: String { SSL_get_version(ssl).map { String(cString: $0) } ?? "" }

    var cipher: String {
        SSL_CIPHER_get_name(SSL_get_current_cipher(ssl)).map { String(cString: $0) } ?? ""
    }

    var isResumed: Bool { SSL_session_reused(ssl) == 1 }

    var peerCertificate: [UInt8]? {
        guard let certificate = SSL_get1_peer_certificate(ssl) else { return nil }
        defer { X509_free(certificate) }
        let size = i2d_X509(certificate, nil)
        guard size > 0 else { return nil }
        return [UInt8](unsafeUninitializedCapacity: Int(size)) { buffer, count in
            var cursor = buffer.baseAddress
            count = Int(max(i2d_X509(certificate, &cursor), 0))
        }
    }
}
