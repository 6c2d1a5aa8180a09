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
        /// The program has to judge the peer's certificate first: `evidence`, then `answer`.
        case wantsTrust
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

    /// What the server's sessions are kept under for resumption; nil: they are not.
    let sessionKey: String?
    private let serverName: String?
    private let asksProgram: Bool
    private var trust = Trust.unasked
    private var isHandshakeDone = false

    private enum Trust {
        case unasked
        case pending(TrustEvidence)
        case accepted
        case refused(TrustEvidence)
    }

    /// - Parameters:
    ///   - port: the server's; tells its sessions from others of the same host.
    ///   - asksProgram: whether the program judges the peer's certificate. Sessions are not resumed then: a resumed
    ///     one is not verified.
    init(
        context: TLSContext, serverName: String?, isServer: Bool, peer: String, port: UInt16 = 0,
        asksProgram: Bool = false
    ) throws(TransportError) {
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
        self.serverName = serverName
        self.asksProgram = asksProgram
        sessionKey = asksProgram || isServer ? nil : serverName.map { "\($0.lowercased()):\(port)" }
        pipe = .allocate(capacity: 1)
        pipe.initialize(to: TLSPipe())
        BIO_set_data(bio, pipe)
        SSL_set_bio(ssl, bio, bio)
        SSL_set_ex_data(ssl, 0, Unmanaged.passUnretained(self).toOpaque())
        if asksProgram {
            SSL_set_verify(ssl, SSL_get_verify_mode(ssl) | SSL_VERIFY_PEER, nil)
            if isServer { copenssl_forbid_tickets(ssl) }
        }
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
        }
        if accepted, let sessionKey, let session = context.takeSession(for: sessionKey) {
            SSL_set_session(ssl, session)
            SSL_SESSION_free(session)
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
        if !isHandshakeDone {
            ERR_clear_error()
            let result = SSL_do_handshake(ssl)
            guard result == 1 else { return outcome(of: result) }
            isHandshakeDone = true
        }
        switch trust {
        case .pending: return .wantsTrust
        case .refused(let evidence):
            // Of a client: its handshake was completed before the program was asked.
            hasSentEnd = true
            return .failed(refusal(evidence))
        case .unasked, .accepted:
            isSecured = true
            return .done(0)
        }
    }

    // MARK: Trust

    /// The session of a TLS object.
    static func of(_ ssl: OpaquePointer?) -> TLSSession? {
        guard let ssl, let pointer = SSL_get_ex_data(ssl, 0) else { return nil }
        return Unmanaged<TLSSession>.fromOpaque(pointer).takeUnretainedValue()
    }

    /// OpenSSL's verify callback: 1 is yes.
    static func verify(_ store: OpaquePointer?) -> Int32 {
        guard let store else { return 0 }
        let ssl = X509_STORE_CTX_get_ex_data(store, SSL_get_ex_data_X509_STORE_CTX_idx())
        guard let session = of(ssl.map { OpaquePointer($0) }), session.asksProgram else {
            return max(0, X509_verify_cert(store))
        }
        return session.ask(about: store)
    }

    /// A client's handshake stops here until the program has answered; a server's cannot, and the answer is waited for
    /// behind it.
    private func ask(about store: OpaquePointer) -> Int32 {
        switch trust {
        case .unasked:
            _ = X509_verify_cert(store)
            let code = X509_STORE_CTX_get_error(store)
            trust = .pending(
                TrustEvidence(
                    chain: Self.chain(of: store), host: serverName, code: code,
                    text: X509_verify_cert_error_string(Int(code)).map { String(cString: $0) } ?? "error \(code)"))
        case .pending: break
        case .accepted:
            X509_STORE_CTX_set_error(store, X509_V_OK)
            return 1
        case .refused(let evidence):
            X509_STORE_CTX_set_error(store, evidence.code == 0 ? X509_V_ERR_APPLICATION_VERIFICATION : evidence.code)
            return 0
        }
        if !isServer { copenssl_retry_verify(ssl) }
        return 1
    }

    private static func chain(of store: OpaquePointer) -> [[UInt8]] {
        var chain = [[UInt8]]()
        for index in 0..<max(0, copenssl_untrusted_count(store)) {
            if let certificate = copenssl_untrusted(store, index) { chain.append(der(of: certificate)) }
        }
        if chain.isEmpty, let certificate = X509_STORE_CTX_get0_cert(store) { chain.append(der(of: certificate)) }
        return chain
    }

    private static func der(of certificate: OpaquePointer) -> [UInt8] {
        let size = i2d_X509(certificate, nil)
        guard size > 0 else { return [] }
        return [UInt8](unsafeUninitializedCapacity: Int(size)) { buffer, count in
            var cursor = buffer.baseAddress
            count = Int(max(i2d_X509(certificate, &cursor), 0))
        }
    }

    /// What the program has to judge now.
    var evidence: TrustEvidence? {
        if case .pending(let evidence) = trust { evidence } else { nil }
    }

    func answer(_ isTrusted: Bool) {
        guard case .pending(let evidence) = trust else { return }
        trust = isTrusted ? .accepted : .refused(evidence)
    }

    private func refusal(_ evidence: TrustEvidence) -> TransportError {
        let words = evidence.code == 0 ? "" : " (\(evidence.text))"
        return TransportError(
            domain: .tls, kind: .certificate, code: evidence.code,
            text: "certificate of \(peer): the program does not trust it\(words)")
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
        case SSL_ERROR_WANT_RETRY_VERIFY: return .wantsTrust
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
        if case .refused(let evidence) = trust { return refusal(evidence) }
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
        var words = ERR_reason_error_string(code).map { String(cString: $0) } ?? "error \(code)"
        if !isSecured, copenssl_is_not_tls(code) != 0 { words = "the peer does not speak TLS (\(words))" }
        return TransportError(
            domain: .tls, kind: .tls, code: Int32(copenssl_reason(code)), text: "TLS with \(peer): \(words)")
    }

    // MARK: What was agreed

    var version: String { SSL_get_version(ssl).map { String(cString: $0) } ?? "" }

    var cipher: String {
        SSL_CIPHER_get_name(SSL_get_current_cipher(ssl)).map { String(cString: $0) } ?? ""
    }

    /// The protocol that ALPN agreed on; nil: none.
    var applicationProtocol: String? {
        var name: UnsafePointer<UInt8>?
        var count: UInt32 = 0
        SSL_get0_alpn_selected(ssl, &name, &count)
        guard let name, count > 0 else { return nil }
        return String(decoding: UnsafeBufferPointer(start: name, count: Int(count)), as: UTF8.self)
    }

    var isResumed: Bool { SSL_session_reused(ssl) == 1 }

    var peerCertificate: [UInt8]? {
        guard let certificate = SSL_get1_peer_certificate(ssl) else { return nil }
        defer { X509_free(certificate) }
        let bytes = Self.der(of: certificate)
        return bytes.isEmpty ? nil : bytes
    }
}
