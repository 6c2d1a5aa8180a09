import CBLIP

/// A client connection; released with the last reference.
final class Connection: @unchecked Sendable {
    let handle: OpaquePointer
    /// As messages show it: as typed for a Unix socket, without user name and password for others.
    let url: String

    /// Takes over the reference.
    init(_ handle: OpaquePointer, url: String) {
        self.handle = handle
        self.url = url
    }

    deinit {
        blip_connection_release(handle)
    }

    /// Closes in order, and waits a moment for the peer's consent.
    func close() {
        _ = blip_connection_close(handle, 1000, blip_slice())
        _ = blip_connection_wait_closed(handle, 2000)
    }

    /// Why it ended, once it has.
    var detail: Detail? {
        var error: OpaquePointer?
        guard blip_connection_error(handle, &error) >= 0, let error else { return nil }
        return Detail(error)
    }

    /// "lost the connection to ws://…: why; what to do".
    func lost(_ status: blip_status, _ extra: String = "") -> Failure {
        let why = detail?.text ?? Library.message(of: status)
        return .connection("lost the connection to \(Terminal.escape(url)): \(why)\(extra)", status: status)
    }
}
