import CBLIP
import HTTPService
import Transport
import WebSocketProtocol

extension Listener {
    /// Serves the files below `folder` at `prefix`.
    public func serveFiles(prefix: String, folder: String, options: FileOptions?) -> blip_status {
        guard prefix.hasPrefix("/"), Self.isPath(prefix), !folder.isEmpty else { return BLIP_ERROR_ARGUMENT }
        var code: Int32 = 0
        guard
            let service = FileService(
                prefix: prefix, folder: folder, options: options?.values ?? FileService.Options(),
                token: Hexadecimal.encode(Randomness.bytes(24)), code: &code)
        else {
            let error = TransportError.posix(code, "open the folder \(folder)")
            return fail(Failure(BLIP_ERROR_FILE, domain: "POSIX", code: Int64(code), error.text))
        }
        return add(service)
    }

    /// Shows a page with what the runtime does at `prefix`; once.
    public func serveDashboard(prefix: String) -> blip_status {
        guard prefix.hasPrefix("/"), Self.isPath(prefix) else { return BLIP_ERROR_ARGUMENT }
        return addDashboard(Dashboard(prefix: prefix, listener: self))
    }

    private static func isPath(_ path: String) -> Bool {
        !path.utf8.contains { $0 <= 0x20 || $0 >= 0x7F || $0 == UInt8(ascii: "?") || $0 == UInt8(ascii: "#") }
    }
}
