import WebSocketProtocol

/// Pages whose content comes by BLIP.
public enum SitePages {
    /// The page of a dashboard, which connects to `socket`.
    public static func dashboard(_ request: HTTPRequestHead, prefix: String, socket: String) -> HTTPResponse {
        guard request.method == "GET" || request.method == "HEAD" else {
            return ErrorPage.response(405, "This can only be read.", headers: [HTTPHeader("Allow", "GET, HEAD")])
        }
        guard request.path == prefix else {
            guard request.path != socket else {
                return ErrorPage.response(
                    426, "This is where the dashboard's page connects to.",
                    headers: [HTTPHeader("Upgrade", "websocket"), HTTPHeader("Connection", "Upgrade")])
            }
            return HTTPResponse(status: 301, headers: SitePolicy.page + [HTTPHeader("Location", prefix)])
        }
        guard let bytes = SiteAssets.bytes(of: "dashboard.html") else {
            return ErrorPage.response(500, "The page is missing.")
        }
        let page = String(decoding: bytes, as: UTF8.self)
        let text = replace(
            "@SOCKET@", with: HTML.escape(socket), in: replace("@ASSETS@", with: SiteAssets.prefix, in: page))
        return HTTPResponse(
            status: 200, type: "text/html; charset=utf-8", text: text, headers: SitePolicy.page)
    }

    private static func replace(_ mark: String, with value: String, in text: String) -> String {
        var result = ""
        var rest = Substring(text).utf8
        let wanted = Array(mark.utf8)
        while let start = rest.indices.first(where: { rest[$0...].starts(with: wanted) }) {
            result += String(Substring(rest[..<start])) + value
            rest = rest[start...].dropFirst(wanted.count)
        }
        return result + String(Substring(rest))
    }
}
