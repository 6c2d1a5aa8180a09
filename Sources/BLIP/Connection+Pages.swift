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
            services: services, isSecure: stream.isSecure, maximumHead: configuration.httpHead, now: { time(nil) })
        let page = HTTPConnection(context: context, listener: listener, stream: stream, session: session)
        session.begin(request)
        page.begin()
        // The program never heard of this connection, and the stream lives on.
        endSettings()
        self.stream = nil
        finish(nil)
        return true
    }
}
