import CBLIP
import Glibc

/// What a server says: the URLs on standard output; with -v, connections on standard error.
///
/// Each line is one `write`, so callbacks on several threads do not mix their lines.
final class ServeLog: Sendable {
    private let isJSON: Bool
    private let isVerbose: Bool

    init(isJSON: Bool, isVerbose: Bool) {
        self.isJSON = isJSON
        self.isVerbose = isVerbose
    }

    func listening(_ url: String) {
        tell(type: "listening", url, words: "")
    }

    /// Where the figures are, if not at the address of the connections.
    func metrics(_ url: String) {
        tell(type: "metrics", Self.http(url), words: "metrics: ")
    }

    /// Where browsers find pages, on the port with this URL. Nowhere if it is no TCP port.
    func pages(_ name: String, at path: String, of url: String) {
        guard url.hasPrefix("ws://") || url.hasPrefix("wss://") else { return }
        let parts = Self.http(url).split(separator: "/", maxSplits: 3, omittingEmptySubsequences: false)
        tell(type: name, parts.prefix(3).joined(separator: "/") + path, words: name + ": ")
    }

    private static func http(_ url: String) -> String {
        url.hasPrefix("ws") ? "http" + url.dropFirst(2) : url
    }

    private func tell(type: String, _ url: String, words: String) {
        guard isJSON else {
            Output.print(words + Terminal.escape(url) + "\n")
            return
        }
        var json = JSONWriter()
        json.object { json in
            json.field("type", type)
            json.field("url", url)
        }
        Output.print(json.text + "\n")
    }

    func stopped() {
        if isJSON {
            Output.print("{\"type\":\"stopped\"}\n")
        } else if isVerbose {
            Output.error("* stopped\n")
        }
    }

    func watch(runtime: OpaquePointer) {
        guard isVerbose else { return }
        _ = blip_runtime_set_log(
            runtime, BLIP_LOG_WARNING,
            { level, domain, text, _ in
                let name = level == BLIP_LOG_ERROR ? "error" : level == BLIP_LOG_WARNING ? "warning" : "info"
                Output.error("* \(Terminal.escape(domain.string)) \(name): \(Terminal.escape(text.string))\n")
            }, nil, nil)
    }

    func watch(listener: OpaquePointer) {
        guard isVerbose else { return }
        _ = blip_listener_set_open_callback(
            listener,
            { connection, _ in
                guard let connection else { return }
                let subprotocol = Library.slice { blip_connection_subprotocol(connection, $0) }?.string ?? ""
                let path = Library.slice { blip_connection_request_path(connection, $0) }?.string ?? ""
                Output.error(
                    "+ \(ServeLog.peer(connection)) \(Terminal.escape(path)) \(Terminal.escape(subprotocol))\n")
            }, nil, nil)
        _ = blip_listener_set_close_callback(
            listener,
            { connection, status, _ in
                guard let connection else { return }
                Output.error("- \(ServeLog.ending(of: connection, status))\n")
            }, nil, nil)
    }

    /// Who left, and why if it was not in order.
    private static func ending(of connection: OpaquePointer, _ status: blip_status) -> String {
        var error: OpaquePointer?
        var why = Library.message(of: status)
        if blip_connection_error(connection, &error) >= 0, let detail = error.flatMap({ Detail($0) }) {
            why = detail.text
        }
        let address = peer(connection)
        if status >= 0 { return address }
        return "\(address): \(why)"
    }

    private static func peer(_ connection: OpaquePointer) -> String {
        Terminal.escape(Library.slice { blip_connection_remote_address(connection, $0) }?.string ?? "?")
    }
}
