import WebSocketProtocol

/// Headers that keep pages harmless: nothing from elsewhere is loaded, run, or sent to, and nobody frames them.
enum SitePolicy {
    private static let common = [
        HTTPHeader("X-Content-Type-Options", "nosniff"),
        HTTPHeader("Referrer-Policy", "same-origin"),
    ]

    private static let own = HTTPHeader("Cross-Origin-Resource-Policy", "same-origin")

    /// Of pages of this library.
    static let page =
        common + [
            own,
            HTTPHeader(
                "Content-Security-Policy",
                "default-src 'none'; style-src 'self'; img-src 'self'; script-src 'self'; connect-src 'self'; "
                    + "form-action 'self'; frame-ancestors 'none'; base-uri 'none'"),
            HTTPHeader("Cache-Control", "no-store"),
        ]

    /// Of served files: what is in them is not trusted with this origin.
    static let file =
        common + [
            own,
            HTTPHeader(
                "Content-Security-Policy",
                "sandbox; default-src 'none'; style-src 'unsafe-inline'; img-src 'self' data:; media-src 'self'"),
        ]

    /// Of style sheets, scripts and pictures of this library.
    static let asset = common + [HTTPHeader("Cache-Control", "max-age=3600")]
}
