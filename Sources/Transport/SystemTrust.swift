import COpenSSL
import Glibc

/// The authorities that the system trusts, read once for all TLS contexts and again when the file has changed.
enum SystemTrust {
    private struct Entry {
        var stamp: FileStamp
        var store: OpaquePointer
    }

    private static let shared = Locked<Entry?>(nil)

    /// The store, with a reference that is the caller's; nil: it cannot be read, and OpenSSL's queue says why.
    static func store() -> OpaquePointer? {
        let variable = X509_get_default_cert_file_env().flatMap { getenv($0) }
        let file = variable ?? X509_get_default_cert_file().map { UnsafeMutablePointer(mutating: $0) }
        let stamp = FileStamp(file.map { String(cString: $0) } ?? "")
        return shared.withLock { entry in
            if let known = entry, known.stamp == stamp {
                X509_STORE_up_ref(known.store)
                return known.store
            }
            guard let store = X509_STORE_new() else { return nil }
            guard X509_STORE_set_default_paths(store) == 1 else {
                X509_STORE_free(store)
                return nil
            }
            if let old = entry { X509_STORE_free(old.store) }
            X509_STORE_up_ref(store)
            entry = Entry(stamp: stamp, store: store)
            return store
        }
    }
}
