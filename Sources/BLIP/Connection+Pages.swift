import CBLIP
import Glibc
import HTTPService
import Transport
import WebSocketProtocol

extension Connection {
    /// Leaves a request that is no upgrade to the listener's pages; false: there are none.
    func servePages(_ request: HTTPRequestHead, _ listener: Listener) -> Bool {
        let services = listener.services
        guard !services.isEmpty, !request.headers.contains("websocket", in: "Upgrade"), let stream else { return false }
        let session = HTTPSession(
            services: services, isSecure: stream.isSecure, maximumHead: configuration.httpHead,
            // Each request has to bring its credentials: what is in front of us may mix those of several clients.
            maximumRequests: listener.access.hasUsers ? 1 : 1000, now: { time(nil) })
        let page = HTTPConnection(context: context, listener: listener, stream: stream, session: session)
        session.begin(request)
        page.begin()
        // The program never heard of this connection, and the stream lives on.
        endSettings()
        isInternal = true
        self.stream = nil
        finish(nil)
        return true
    }
}

extension Connection {
    /// Opens a connection of the dashboard's page; false: the request is for something else.
    func openDashboard(_ request: HTTPRequestHead, _ upgrade: Upgrade, _ listener: Listener) -> Bool {
        guard let dashboard = listener.dashboard, request.path == dashboard.socketPath else { return false }
        guard dashboard.mayConnect(request, isSecure: stream?.isSecure ?? false) else {
            let text = "Only pages of this server may connect to its dashboard."
            refuse(
                ServerHandshake.refusal(status: 403, text: text),
                Failure(BLIP_ERROR_HTTP, domain: "HTTP", code: 403, text))
            return true
        }
        switch ServerHandshake.decide(request, protocols: [Dashboard.subprotocol], paths: []) {
        case .refuse(let status, let response, let text):
            refuse(response, Failure(BLIP_ERROR_HTTP, domain: "HTTP", code: Int64(status), text))
        case .accept(let subprotocol, let response):
            upgrade.subprotocol = subprotocol
            upgrade.output = response
            isInternal = true
            adopt(dashboard.makeSettings())
            open(subprotocol: subprotocol)
        }
        return true
    }

    // MARK: For the dashboard

    /// Tells connections apart as long as they live.
    var identifier: String { "\(context.index)-\(slot)" }
    var peerText: String { remoteAddressText?.string ?? "in this process" }

    /// Seconds since it opened.
    var age: UInt32 { UInt32(truncatingIfNeeded: loop.now / 1_000_000_000) &- openedAt }
}
