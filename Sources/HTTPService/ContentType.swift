/// Content types by the ending of a file's name.
enum ContentType {
    private static let byEnding: [String: String] = [
        "aac": "audio/aac", "avi": "video/x-msvideo", "avif": "image/avif", "bmp": "image/bmp",
        "bz2": "application/x-bzip2",
        "c": "text/plain", "cbor": "application/cbor", "conf": "text/plain", "cpp": "text/plain", "css": "text/css",
        "csv": "text/csv", "deb": "application/vnd.debian.binary-package", "flac": "audio/flac", "gif": "image/gif",
        "gz": "application/gzip", "h": "text/plain", "htm": "text/html", "html": "text/html", "ico": "image/x-icon",
        "ics": "text/calendar", "ini": "text/plain", "jpeg": "image/jpeg", "jpg": "image/jpeg", "js": "text/javascript",
        "json": "application/json", "log": "text/plain", "m4a": "audio/mp4", "md": "text/markdown",
        "mjs": "text/javascript",
        "mov": "video/quicktime", "mp3": "audio/mpeg", "mp4": "video/mp4", "ndjson": "application/x-ndjson",
        "odt": "application/vnd.oasis.opendocument.text", "ogg": "audio/ogg", "opus": "audio/opus", "otf": "font/otf",
        "pdf": "application/pdf", "png": "image/png", "py": "text/plain", "rs": "text/plain", "rtf": "application/rtf",
        "sh": "text/plain", "svg": "image/svg+xml", "swift": "text/plain", "tar": "application/x-tar",
        "tif": "image/tiff",
        "tiff": "image/tiff", "toml": "application/toml", "ttf": "font/ttf", "txt": "text/plain",
        "wasm": "application/wasm",
        "wav": "audio/wav", "webm": "video/webm", "webp": "image/webp", "woff": "font/woff", "woff2": "font/woff2",
        "xml": "application/xml", "xz": "application/x-xz", "yaml": "application/yaml", "yml": "application/yaml",
        "zip": "application/zip", "zst": "application/zstd",
    ]

    private static let compressible: Set<String> = [
        "application/json", "application/x-ndjson", "application/xml", "application/yaml", "application/toml",
        "application/wasm", "application/rtf", "application/x-tar", "image/svg+xml", "image/bmp", "font/ttf",
        "font/otf",
        "image/x-icon",
    ]

    /// The type of a file, with the character set if it is a text.
    static func of(_ name: String) -> String {
        guard let dot = name.utf8.lastIndex(of: UInt8(ascii: ".")), dot > name.startIndex else {
            return "application/octet-stream"
        }
        let ending = String(name[name.index(after: dot)...]).lowercased()
        guard ending.utf8.count <= 8, let type = byEnding[ending] else { return "application/octet-stream" }
        return type.hasPrefix("text/") ? "\(type); charset=utf-8" : type
    }

    /// Whether gzip makes it noticeably smaller.
    static func isCompressible(_ type: String) -> Bool { type.hasPrefix("text/") || compressible.contains(type) }
}
