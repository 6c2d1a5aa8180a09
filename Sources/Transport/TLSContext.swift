import COpenSSL
import CSystem
import Glibc

/// What the TLS of many connections has in common: whom to trust, who we are, which versions.
///
/// Made once, on any thread, and shared; it never changes. Files are read when it is made.
public final class TLSContext: @unchecked Sendable {
    // Sendable: OpenSSL's contexts are safe to share once they are set up, and the sessions have a lock.

    let handle: OpaquePointer
    let isServer: Bool
    let verifies: Bool
    /// The names of ALPN as they go over the wire.
    private let protocols: [UInt8]
    private var keyLog: Int32 = -1
    private let sessions = Locked(SessionStore())

    /// The last session of each server ("host:port"), for resumption.
    private struct SessionStore {
        var byHost = [String: OpaquePointer]()
    }

    private static let maximumSessions = 64

    /// The client's side.
    ///
    /// - Parameters:
    ///   - caFile: PEM file of the authorities to trust; they alone are trusted then. nil: the system's store.
    ///   - verify: false: any certificate is taken. Encryption without knowing whom one talks to.
    ///   - identity: for servers that ask for a certificate.
    public static func client(
        caFile: String? = nil, verify: Bool = true, identity: TLSIdentity? = nil, minimum: TLSVersion = .v12,
        maximum: TLSVersion = .v13, options: TLSOptions = TLSOptions()
    ) throws(TransportError) -> TLSContext {
        let context = try TLSContext(
            isServer: false, verifies: verify, minimum: minimum, maximum: maximum, options: options)
        if let caFile {
            try context.trust(caFile)
        } else if options.crlFile == nil {
            ERR_clear_error()
            if let store = SystemTrust.store() {
                SSL_CTX_set_cert_store(context.handle, store)
            } else if verify {
                throw setupError("the system's certificate store", reading: true)
            }
        } else if SSL_CTX_set_default_verify_paths(context.handle) != 1, verify {
            throw setupError("the system's certificate store", reading: true)
        }
        if let file = options.crlFile { try context.revoke(file) }
        if let identity { try context.use(identity) }
        SSL_CTX_set_verify(context.handle, verify ? SSL_VERIFY_PEER : SSL_VERIFY_NONE, nil)
        context.keepSessions()
        return context
    }

    /// As `client`, but one that was made before if options and files are the same: its connections resume sessions.
    public static func sharedClient(
        caFile: String? = nil, verify: Bool = true, identity: TLSIdentity? = nil, minimum: TLSVersion = .v12,
        maximum: TLSVersion = .v13, options: TLSOptions = TLSOptions()
    ) throws(TransportError) -> TLSContext {
        let key = TLSContextCache.Key(
            caFile: caFile.map { FileStamp($0) }, certificate: (identity?.certificateFile).map { FileStamp($0) },
            key: (identity?.keyFile).map { FileStamp($0) }, crl: options.crlFile.map { FileStamp($0) },
            verify: verify, minimum: minimum, maximum: maximum, options: options)
        return try TLSContextCache.context(for: key) { () throws(TransportError) in
            try client(
                caFile: caFile, verify: verify, identity: identity, minimum: minimum, maximum: maximum,
                options: options)
        }
    }

    /// The server's side.
    ///
    /// - Parameters:
    ///   - clientCAFile: PEM file of the authorities whose clients are trusted; clients are asked for a certificate
    ///     then. One that is given must be good.
    ///   - clientCertificateRequired: whether a client without a certificate is refused.
    public static func server(
        identity: TLSIdentity, clientCAFile: String? = nil, clientCertificateRequired: Bool = false,
        minimum: TLSVersion = .v12, maximum: TLSVersion = .v13, options: TLSOptions = TLSOptions()
    ) throws(TransportError) -> TLSContext {
        let context = try TLSContext(
            isServer: true, verifies: clientCAFile != nil, minimum: minimum, maximum: maximum, options: options)
        try context.use(identity)
        if let clientCAFile {
            try context.trust(clientCAFile)
            SSL_CTX_set_client_CA_list(context.handle, SSL_load_client_CA_file(clientCAFile))
            let mode = SSL_VERIFY_PEER | (clientCertificateRequired ? SSL_VERIFY_FAIL_IF_NO_PEER_CERT : 0)
            SSL_CTX_set_verify(context.handle, mode, nil)
            if let file = options.crlFile { try context.revoke(file) }
        } else if clientCertificateRequired {
            throw setupError("client certificates are required, but no file names the authorities to trust")
        }
        // Tickets carry the state, no cache does; with client certificates OpenSSL wants them bound to a name.
        copenssl_set_session_cache(context.handle, 1)
        let name: [UInt8] = Array("libblip".utf8)
        SSL_CTX_set_session_id_context(context.handle, name, UInt32(name.count))
        return context
    }

    /// Sets OpenSSL up before anything uses it: without clean-up at exit, when loop threads may still be inside; and here,
    /// because reading its configuration takes milliseconds that no loop should spend. Cheap after the first time.
    public static func prepare() {
        OPENSSL_init_ssl(UInt64(OPENSSL_INIT_NO_ATEXIT), nil)
        // The first use of a digest looks for its provider.
        EVP_MD_free(EVP_MD_fetch(nil, "SHA1", nil))
    }

    private init(
        isServer: Bool, verifies: Bool, minimum: TLSVersion, maximum: TLSVersion, options: TLSOptions
    ) throws(TransportError) {
        guard minimum <= maximum else { throw Self.setupError("the lowest TLS version is above the highest") }
        Self.prepare()
        ERR_clear_error()
        guard let handle = SSL_CTX_new(isServer ? TLS_server_method() : TLS_client_method()) else {
            throw Self.setupError("make a TLS context", reading: true)
        }
        self.handle = handle
        self.isServer = isServer
        self.verifies = verifies
        protocols = TLSContext.wireForm(options.protocols)
        copenssl_configure(handle, Int32(minimum.rawValue), Int32(maximum.rawValue))
        // Never ask on the terminal for the password of a key.
        SSL_CTX_set_default_passwd_cb(handle) { _, _, _, _ in -1 }
        SSL_CTX_set_ex_data(handle, 0, Unmanaged.passUnretained(self).toOpaque())
        SSL_CTX_set_cert_verify_callback(handle, { store, _ in TLSSession.verify(store) }, nil)
        try apply(options)
    }

    deinit {
        sessions.withLock {
            for session in $0.byHost.values { SSL_SESSION_free(session) }
            $0.byHost = [:]
        }
        SSL_CTX_free(handle)
        if keyLog >= 0 { _ = csystem_close(keyLog) }
    }

    // MARK: Options

    private func apply(_ options: TLSOptions) throws(TransportError) {
        if let ciphers = options.ciphers {
            guard !ciphers.utf8.contains(0), SSL_CTX_set_cipher_list(handle, ciphers) == 1 else {
                throw Self.setupError("cipher list \(ciphers)", reading: true)
            }
        }
        if let suites = options.suites {
            guard !suites.utf8.contains(0), SSL_CTX_set_ciphersuites(handle, suites) == 1 else {
                throw Self.setupError("cipher suites \(suites)", reading: true)
            }
        }
        if let file = options.keyLogFile {
            try Self.checkText(file, "key log file")
            keyLog = csystem_open_private(file)
            guard keyLog >= 0 else {
                throw Self.setupError("key log file \(file): \(TransportError.words(for: -keyLog))")
            }
            SSL_CTX_set_keylog_callback(handle) { ssl, line in
                guard let line, let context = TLSContext.of(ssl) else { return }
                // In one write, so that lines of several threads do not mix.
                _ = csystem_append(context.keyLog, line)
            }
        }
        guard !protocols.isEmpty else { return }
        if !isServer {
            SSL_CTX_set_alpn_protos(handle, protocols, UInt32(protocols.count))
        } else {
            SSL_CTX_set_alpn_select_cb(
                handle,
                { ssl, chosen, length, offered, count, _ in
                    guard let own = TLSContext.of(ssl)?.protocols, let chosen, let length else {
                        return SSL_TLSEXT_ERR_NOACK
                    }
                    // The result points into what the client offered, not into our list.
                    guard let match = TLSContext.firstMatch(own, offered, Int(count)) else {
                        return SSL_TLSEXT_ERR_ALERT_FATAL
                    }
                    chosen.pointee = match.baseAddress
                    length.pointee = UInt8(truncatingIfNeeded: match.count)
                    return SSL_TLSEXT_ERR_OK
                }, nil)
        }
    }

    /// Each name with its length in front (RFC 7301 §3.1); names were checked when they were set.
    private static func wireForm(_ names: [String]) -> [UInt8] {
        names.flatMap { [UInt8(truncatingIfNeeded: $0.utf8.count)] + Array($0.utf8.prefix(255)) }
    }

    /// The first of our names that the client offers, as it lies there.
    private static func firstMatch(
        _ own: [UInt8], _ offered: UnsafePointer<UInt8>?, _ count: Int
    ) -> UnsafeBufferPointer<UInt8>? {
        let offered = UnsafeBufferPointer(start: offered, count: count)
        var index = 0
        while index < own.count {
            let name = own[index...].dropFirst().prefix(Int(own[index]))
            var at = 0
            while at < offered.count {
                let end = min(at + 1 + Int(offered[at]), offered.count)
                let other = UnsafeBufferPointer(rebasing: offered[min(at + 1, end)..<end])
                if other.elementsEqual(name) { return other }
                at = end
            }
            index += 1 + Int(own[index])
        }
        return nil
    }

    /// The context of a TLS object: the object keeps the handle, and a stream the context.
    static func of(_ ssl: OpaquePointer?) -> TLSContext? {
        guard let ssl, let pointer = SSL_CTX_get_ex_data(SSL_get_SSL_CTX(ssl), 0) else { return nil }
        return Unmanaged<TLSContext>.fromOpaque(pointer).takeUnretainedValue()
    }

    private func revoke(_ file: String) throws(TransportError) {
        try Self.checkText(file, "CRL file")
        ERR_clear_error()
        guard let store = SSL_CTX_get_cert_store(handle),
            let lookup = X509_STORE_add_lookup(store, X509_LOOKUP_file()),
            X509_load_crl_file(lookup, file, X509_FILETYPE_PEM) > 0
        else { throw Self.setupError("CRL file \(file)", reading: true) }
        X509_VERIFY_PARAM_set_flags(SSL_CTX_get0_param(handle), UInt(X509_V_FLAG_CRL_CHECK))
    }

    private func trust(_ file: String) throws(TransportError) {
        try Self.checkText(file, "CA file")
        ERR_clear_error()
        guard SSL_CTX_load_verify_file(handle, file) == 1 else {
            throw Self.setupError("CA file \(file)", reading: true)
        }
    }

    private func use(_ identity: TLSIdentity) throws(TransportError) {
        try Self.checkText(identity.certificateFile, "certificate file")
        try Self.checkText(identity.keyFile, "key file")
        ERR_clear_error()
        guard SSL_CTX_use_certificate_chain_file(handle, identity.certificateFile) == 1 else {
            throw Self.setupError("certificate file \(identity.certificateFile)", reading: true)
        }
        ERR_clear_error()
        guard SSL_CTX_use_PrivateKey_file(handle, identity.keyFile, SSL_FILETYPE_PEM) == 1 else {
            throw Self.setupError("key file \(identity.keyFile)", reading: true)
        }
        guard SSL_CTX_check_private_key(handle) == 1 else {
            throw Self.setupError("key file \(identity.keyFile)", reading: true)
        }
    }

    private static func checkText(_ file: String, _ what: String) throws(TransportError) {
        if file.isEmpty || file.utf8.contains(0) { throw setupError("\(what): the name is empty or has a NUL") }
    }

    /// An error of kind `.tlsSetup`; with `reading`, the reason is the first in OpenSSL's queue, in plain words.
    static func setupError(_ subject: String, reading: Bool = false) -> TransportError {
        guard reading else { return TransportError(domain: .tls, kind: .tlsSetup, code: 0, text: subject) }
        var text = "unknown reason"
        var code: Int32 = 0
        var isFirst = true
        while true {
            let error = ERR_get_error()
            if error == 0 { break }
            let system = copenssl_system_error(error)
            if system != 0 {
                text = TransportError.words(for: Int32(system))
                code = Int32(system)
                break
            }
            if isFirst {
                code = Int32(copenssl_reason(error))
                text = ERR_reason_error_string(error).map { String(cString: $0) } ?? "error \(error)"
            }
            isFirst = false
        }
        ERR_clear_error()
        switch text {
        case "no start line": text = "it holds no PEM text of that kind"
        case "bad password read", "problems getting password", "interrupted or cancelled", "empty password":
            text = "the key is encrypted; a key without a password is needed"
        case "key values mismatch": text = "the key is not that of the certificate"
        default: break
        }
        return TransportError(domain: .tls, kind: .tlsSetup, code: code, text: "\(subject): \(text)")
    }

    // MARK: Resumption

    /// The session last agreed with the server, now the caller's to free. A ticket of TLS 1.3 is used once
    /// (RFC 8446 §C.4).
    func takeSession(for host: String) -> OpaquePointer? {
        sessions.withLock { store in
            guard let session = store.byHost[host] else { return nil }
            if SSL_SESSION_get_protocol_version(session) >= Int32(TLSVersion.v13.rawValue) {
                store.byHost[host] = nil
            } else {
                SSL_SESSION_up_ref(session)
            }
            return session
        }
    }

    private func store(_ session: OpaquePointer, for host: String) {
        let old = sessions.withLock { store -> OpaquePointer? in
            let isFull = store.byHost.count >= Self.maximumSessions && store.byHost[host] == nil
            let victim = isFull ? store.byHost.keys.first ?? host : host
            let removed = store.byHost.removeValue(forKey: victim)
            store.byHost[host] = session
            return removed
        }
        if let old { SSL_SESSION_free(old) }
    }

    private func keepSessions() {
        copenssl_set_session_cache(handle, 0)
        SSL_CTX_sess_set_new_cb(handle) { ssl, session in
            guard let session, let context = TLSContext.of(ssl), let key = TLSSession.of(ssl)?.sessionKey else {
                return 0
            }
            context.store(session, for: key)
            return 1
        }
    }
}
