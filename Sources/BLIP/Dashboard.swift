import BLIPProtocol
import CBLIP
import Glibc
import HTTPService
import Transport
import WebSocketProtocol

/// A page that shows what a listener's runtime does, and the BLIP connections that the page gets its figures by.
///
/// The page asks once a second (profile "snapshot"), and may close a connection ("close"). It speaks BLIP 3 at a path of
/// its own, which only pages of this listener may connect to.
final class Dashboard: HTTPService {
    static let subprotocol = "BLIP_3+Dashboard"
    private static let maximumErrors = 50

    let prefix: String
    let socketPath: String
    private unowned let listener: Listener
    private let started = time(nil)

    private struct Failure {
        let time: Int
        let peer: String
        let text: String
    }

    private let failures = Locked<[Failure]>([])

    init(prefix: String, listener: Listener) {
        self.prefix = prefix.hasSuffix("/") ? prefix : prefix + "/"
        socketPath = self.prefix + "socket"
        self.listener = listener
    }

    // MARK: The page

    var isSensitive: Bool { true }

    func handles(path: String) -> Bool { path == prefix || path + "/" == prefix || path == socketPath }

    func reply(to request: HTTPRequestHead, isSecure: Bool) -> HTTPReply {
        .respond(SitePages.dashboard(request, prefix: prefix, socket: socketPath))
    }

    // MARK: Its connections

    /// Whether a request to upgrade is of the page: programs, which name no origin, may as well.
    func mayConnect(_ request: HTTPRequestHead, isSecure: Bool) -> Bool {
        guard let origin = request["Origin"] else { return true }
        guard let host = request["Host"], listener.access.allowHost(of: request, isSecure: isSecure, isSensitive: true)
        else { return false }
        return origin == "\(isSecure ? "https" : "http")://\(host)"
    }

    /// What answers the page, in place of the program's handlers.
    func makeSettings() -> ConnectionSettings {
        let context = Unmanaged.passRetained(self).toOpaque()
        let handler = RequestHandler(
            { _, message, context in
                guard let context else { return BLIP_ERROR_ARGUMENT }
                return HandleTable.with(message) { (request: BLIPMessage) in
                    Unmanaged<Dashboard>.fromOpaque(context)._withUnsafeGuaranteedRef { $0.answer(request, message) }
                }
            }, context, { context in if let context { Unmanaged<Dashboard>.fromOpaque(context).release() } })
        return ConnectionSettings().settingHandler(nil, handler) ?? ConnectionSettings()
    }

    private func answer(_ request: BLIPMessage, _ handle: OpaquePointer?) -> blip_status {
        switch request.profileText {
        case "snapshot":
            let status = request.deferReply()
            guard status == BLIP_OK else { return status }
            // A deferred request is answered for if nobody has a handle.
            let held = HandleTable.retain(handle, as: BLIPMessage.self)
            DashboardSnapshot(request, held, listener: listener, facts: facts()).begin()
            return BLIP_OK
        case "close":
            close(request.text(of: "connection"))
            return request.respondEmpty()
        default: return request.respondError("BLIP", 404, "The dashboard does not know this profile.")
        }
    }

    private func close(_ identifier: String) {
        for context in listener.runtime.contexts {
            context.loop.post {
                for connection in context.connections where connection.identifier == identifier {
                    connection.markClosing()
                    connection.beginClose(code: 1001, reason: Array("closed by the dashboard".utf8), nil)
                    return
                }
            }
        }
    }

    // MARK: Facts

    func note(_ failure: String, peer: String) {
        failures.withLock { list in
            if list.count >= Self.maximumErrors { list.removeFirst() }
            list.append(Failure(time: time(nil), peer: peer, text: failure))
        }
    }

    private func facts() -> String {
        var json = JSONText()
        json.object { json in
            HostFacts.write(to: &json, started: started)
            json.value("url", listener.url?.string ?? "")
            json.value("loops", listener.runtime.contexts.count)
            json.array("subprotocols") { json in for name in listener.configuration.subprotocols { json.item(name) } }
            json.array("paths") { json in for path in listener.paths { json.item(path) } }
            json.array("errors") { json in
                for failure in failures.withLock({ $0 }) {
                    json.object { json in
                        json.value("time", failure.time)
                        json.value("peer", failure.peer)
                        json.value("text", failure.text)
                    }
                }
            }
        }
        return json.text
    }
}

extension BLIPMessage {
    /// A property as text; empty if there is none.
    func text(of key: StaticString) -> String {
        property(key.bytes).map { String(decoding: $0, as: UTF8.self) } ?? ""
    }

    var profileText: String { text(of: "Profile") }
}
