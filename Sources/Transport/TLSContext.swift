import COpenSSL
import Glibc

/// What the TLS of many connections has in common: whom to trust, who we are, which versions.
///
/// Made once, on any thread, and shared; it never changes. Files are read when it is made.
public final class TLSContext: @unchecked Sendable {
    // Sendable: OpenSSL's contexts are safe to share once they are set up, and the sessions have a lock.

    let handle: OpaquePointer
    let isServer: Bool
    let verifies: Bool
    private let sessions = Locked(SessionStore())

    /// The last session of each server, for resumption.
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
        maximum: TLSVersion = .v13
    ) throws(TransportError) -> TLSContext {
        let context = try TLSContext(isServer: false, verifies: verify, minimum: minimum, maximum: maximum)
        if let caFile {
            try context.trust(caFile)
        } else if verify {
            guard SSL_CTX_set_default_verify_paths(context.handle) == 1 else {
                throw setupError("the system's certificate store", reading: true)
            }
        }
        if let identity { try context.use(identity) }
        SSL_CTX_set_verify(context.handle, verify ? SSL_VERIFY_PEER : SSL_VERIFY_NONE, nil)
        context.keepSessions()
        return context
    }

    /// The server's side.
    ///
    /// - Parameters:
    ///   - clientCAFile: PEM file of the authorities whose clients are trusted; clients are asked for a certificate
    ///     then. One that is given must be good.
    ///   - clientCertificateRequired: whether a client without a certificate is refused.
    public static func server(
        identity: TLSIdentity, clientCAFile: String? = nil, clientCertificateRequired: Bool = false,
        minimum: TLSVersion = .v12, maximum: TLSVersion = .v13
    ) throws(TransportError) -> TLSContext {
        let context = try TLSContext(
            isServer: true, verifies: clientCAFile != nil, minimum: minimum, maximum: maximum)
        try context.use(identity)
        if let clientCAFile {
            try context.trust(clientCAFile)
            SSL_CTX_set_client_CA_list(context.handle, SSL_load_client_CA_file(clientCAFile))
            let mode = SSL_VERIFY_PEER | (clientCertificateRequired ? SSL_VERIFY_FAIL_IF_NO_PEER_CERT : 0)
            SSL_CTX_set_verify(context.handle, mode, nil)
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

    private init(isServer: Bool, verifies: Bool, minimum: TLSVersion, maximum: TLSVersion) throws(TransportError) {
        guard minimum <= maximum else { throw Self.setupError("the lowest TLS version is above the highest") }
        Self.prepare()
        ERR_clear_error()
        guard let handle = SSL_CTX_new(isServer ? TLS_server_method() : TLS_client_method()) else {
            throw Self.setupError("make a TLS context", reading: true)
        }
        self.handle = handle
        self.isServer = isServer
        self.verifies = verifies
        copenssl_configure(handle, Int32(minimum.rawValue), Int32(maximum.rawValue))
        // Never ask on the terminal for the password of a key.
        SSL_CTX_set_default_passwd_cb(handle) { _, _, _, _ in -1 }
    }

    deinit {
        sessions.withLock {
            for session in $0.byHost.values { SSL_SESSION_free(session) }
            $0.byHost = [:]
        }
        SSL_CTX_free(handle)
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
        SSL_CTX_set_ex_data(handle, 0, Unmanaged.passUnretained(self).toOpaque())
        SSL_CTX_sess_set_new_cb(handle) { ssl, session in
            // A TLS object keeps its context's handle, and a stream the context, so the pointer is good here.
            guard let ssl, let session, let pointer = SSL_CTX_get_ex_data(SSL_get_SSL_CTX(ssl), 0),
                let name = SSL_get_servername(ssl, TLSEXT_NAMETYPE_host_name)
            else { return 0 }
            Unmanaged<TLSContext>.fromOpaque(pointer).takeUnretainedValue().store(session, for: String(cString: name))
            return 1
        }
    }
}
