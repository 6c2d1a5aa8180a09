import CBLIP
import Glibc

/// Holds a long body until it is complete: its first megabyte in memory, the rest in a nameless file.
///
/// The reply may not begin before the request has ended (some peers do not survive that), so an echo of any size needs
/// a place for all of it.
final class EchoSpool {
    private static let memoryLimit = 1 << 20

    private let request: OpaquePointer
    private var memory: [UInt8] = []
    private var file: Int32 = -1
    private var written: UInt64 = 0
    private var failure: String?

    private init(_ request: OpaquePointer) {
        self.request = request
        _ = blip_message_retain(request)
    }

    deinit {
        if file >= 0 { close(file) }
        blip_message_release(request)
    }

    static func start(_ request: OpaquePointer) -> blip_status {
        var status = blip_message_defer(request)
        guard status >= 0 else { return status }
        let context = Unmanaged.passRetained(EchoSpool(request)).toOpaque()
        status = blip_message_set_data_callback(
            request,
            { _, data, status, context in
                guard let context else { return data.size }
                Unmanaged<EchoSpool>.fromOpaque(context).takeUnretainedValue().take(data, status)
                return data.size
            }, context,
            { context in
                if let context { Unmanaged<EchoSpool>.fromOpaque(context).release() }
            })
        return status
    }

    private func take(_ data: blip_slice, _ status: blip_status) {
        let isEverything = status == BLIP_DATA_END && memory.isEmpty && file < 0
        if failure == nil && data.size > 0 && !isEverything { store(data.bytes) }
        guard status == BLIP_DATA_END else { return }
        if let failure {
            Profiles.respond(to: request, code: 507, "the body cannot be held: \(failure)")
            return
        }
        let result = EchoProfile.answer(request) { response in
            if isEverything { return blip_message_set_body(response, data) }
            guard file >= 0 else {
                return memory.withUnsafeBytes { blip_message_set_body(response, blip_slice($0)) }
            }
            let status = blip_message_append_body_file(response, file, 0, written, true)
            if status >= 0 { file = -1 }
            return status
        }
        if result < 0 { Profiles.respond(to: request, code: 500, Library.message(of: result)) }
    }

    private func store(_ bytes: UnsafeRawBufferPointer) {
        if file < 0 {
            if memory.count + bytes.count <= Self.memoryLimit {
                memory.append(contentsOf: bytes)
                return
            }
            guard openFile(), memory.withUnsafeBytes({ write($0) }) else { return }
            memory = []
        }
        _ = write(bytes)
    }

    private func write(_ bytes: UnsafeRawBufferPointer) -> Bool {
        guard Output.write(bytes, to: file) else {
            failure = Output.reason
            return false
        }
        written += UInt64(bytes.count)
        return true
    }

    private func openFile() -> Bool {
        var directories = ["/var/tmp", "/tmp"]
        if let chosen = getenv("TMPDIR") { directories.insert(String(cString: chosen), at: 0) }
        for directory in directories {
            var template = Array("\(directory)/blip-XXXXXX".utf8CString)
            file = mkstemp(&template)
            if file >= 0 {
                _ = fcntl(file, F_SETFD, FD_CLOEXEC)
                unlink(template)
                return true
            }
        }
        failure = Output.reason
        return false
    }
}
