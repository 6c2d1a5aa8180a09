import CSiteAssets
import WebSocketProtocol

/// The style sheets, scripts and pictures of the library's pages.
public final class SiteAssets: HTTPService {
    public var isSensitive: Bool { false }
    /// Where they are in URLs.
    static let prefix = "/-/blip/"

    /// What browsers ask for beside a file.
    private static let defaultIcon = "/favicon.ico"

    public init() {}

    public func handles(path: String) -> Bool { path.hasPrefix(Self.prefix) || path == Self.defaultIcon }

    public func reply(to request: HTTPRequestHead, isSecure: Bool) -> HTTPReply {
        guard request.method == "GET" || request.method == "HEAD" else {
            return .respond(
                ErrorPage.response(405, "This can only be read.", headers: [HTTPHeader("Allow", "GET, HEAD")]))
        }
        let isIcon = request.path == Self.defaultIcon
        let name = isIcon ? "icon.svg" : request.path.dropFirst(Self.prefix.count)
        // Pages are shown elsewhere, filled in.
        guard !name.hasSuffix(".html"), let bytes = Self.bytes(of: String(name)) else {
            return .respond(ErrorPage.response(404, "There is nothing at this address."))
        }
        return .respond(
            HTTPResponse(
                status: 200, headers: SitePolicy.asset + [HTTPHeader("Content-Type", ContentType.of(String(name)))],
                body: .bytes(bytes)))
    }

    static func bytes(of name: String) -> [UInt8]? {
        var size = 0
        guard let base = csite_asset(name, &size) else { return nil }
        return [UInt8](UnsafeRawBufferPointer(start: base, count: size))
    }
}
