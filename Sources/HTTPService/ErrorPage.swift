import WebSocketProtocol

/// The page that tells what went wrong.
enum ErrorPage {
    static func response(_ status: Int, _ text: String, headers: [HTTPHeader] = []) -> HTTPResponse {
        let title = "\(status) \(title(status))"
        let body = """
            <main class="message">
            <h1>\(HTML.escape(title))</h1>
            <p>\(HTML.escape(text))</p>
            </main>
            """
        return HTTPResponse(
            status: status, type: "text/html; charset=utf-8",
            text: HTML.page(title: title, assets: SiteAssets.prefix, body: body),
            headers: SitePolicy.page + headers)
    }

    private static func title(_ status: Int) -> String {
        switch status {
        case 400: "Bad request"
        case 401: "Who are you?"
        case 403: "Not allowed"
        case 404: "Not found"
        case 405: "Method not allowed"
        case 409: "Conflict"
        case 412: "Precondition failed"
        case 413: "Too large"
        case 415: "Unsupported form"
        case 416: "Range not satisfiable"
        case 421: "Not by this name"
        case 507: "No space left"
        default: status >= 500 ? "Server error" : "Error"
        }
    }
}
