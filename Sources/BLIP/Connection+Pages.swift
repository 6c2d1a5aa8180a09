import CBLIP
import Glibc
import HTTPService
import Transport
import WebSocketProtocol

extension Connection {
    /// Leaves a request that is no upgrade to the listener's pages, if the program lets the client in; false: there are
    /// none.
    func showPages(_ request: HTTPRequestHead, _ upgrade: Upgrade, _ listener: Listener) -> Bool {
        guard !listener.services.isEmpty, !request.headers.contains("websocket", in: "Upgrade") else { return false }
        upgrade.page = request
        ask(about: request, listener)
        return true
    }

    /// The program's accept callback decides, if there is one.
    private func ask(about request: HTTPRequestHead, _ listener: Listener) {
        phase = .waitingForAccept
        tell(BLIP_OBSERVE_WILL_AUTHENTICATE)
        guard let handler = listener.acceptHandler else { return continueAfterAccept() }
        rememberHead(path: request.pathAndQuery, request.headers)
        present(request, handler, listener)
    }

    func servePages(_ request: HTTPRequestHead) {
        guard let listener, let stream else { return finish(nil) }
        let access = listener.access
        // What is in front of us may mix the requests of several clients: each one brings its credentials, and a
        // program that decides sees each one.
        let gate: (HTTPRequestHead) -> HTTPResponse? = { request in
            if case .good = access.judge(request) { return nil }
            return HTTPSession.unauthorized(access.challenge)
        }
        let session = HTTPSession(
            services: listener.services, isSecure: stream.isSecure, maximumHead: configuration.httpHead,
            maximumRequests: listener.acceptHandler == nil ? 1000 : 1, gate: access.hasUsers ? gate : nil,
            allowsHost: { [isSecure = stream.isSecure] request, isSensitive in
                access.allowHost(of: request, isSecure: isSecure, isSensitive: isSensitive)
            },
            now: { time(nil) })
        let page = HTTPConnection(context: context, listener: listener, stream: stream, session: session)
        session.begin(request)
        page.begin()
        // No callback told the program that this connection is open, and the stream lives on. Observers know of it.
        adopt(ConnectionSettings().adding(settings.attachments))
        isInternal = true
        self.stream = nil
        finish(nil)
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
            upgrade.isDashboard = true
            ask(about: request, listener)
        }
        return true
    }

    /// The client was let in: from now on the program hears nothing of it. To observers it is as if it had ended.
    func becomeInternal(_ dashboard: Dashboard) {
        tell(BLIP_OBSERVE_CLOSED)
        isInternal = true
        adopt(dashboard.makeSettings())
    }

    // MARK: For the dashboard

    /// Tells connections apart, also from those that have ended.
    var identifier: String { "\(context.index)-\(serial)" }
    var peerText: String { remoteAddressText?.string ?? "in this process" }

    /// Seconds since it opened.
    var age: UInt32 { UInt32(truncatingIfNeeded: loop.now / 1_000_000_000) &- openedAt }
}
