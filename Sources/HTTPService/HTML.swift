/// Texts inside HTML.
enum HTML {
    /// Any text as the content of an element or of a quoted attribute.
    static func escape(_ text: String) -> String {
        var result = ""
        result.reserveCapacity(text.utf8.count)
        for scalar in text.unicodeScalars {
            switch scalar {
            case "&": result += "&amp;"
            case "<": result += "&lt;"
            case ">": result += "&gt;"
            case "\"": result += "&quot;"
            case "'": result += "&#39;"
            default:
                // Directions of writing could make a name look like another.
                let value = scalar.value
                let isHidden =
                    value < 0x20 || (0x7F..<0xA0).contains(value) || (0x202A...0x202E).contains(value)
                    || (0x2066...0x2069).contains(value)
                result.unicodeScalars.append(isHidden ? "\u{FFFD}" : scalar)
            }
        }
        return result
    }

    /// A page of this library, with its style.
    static func page(title: String, assets: String, body: String) -> String {
        """
        <!doctype html>
        <html lang="en">
        <head>
        <meta charset="utf-8">
        <meta name="viewport" content="width=device-width, initial-scale=1">
        <title>\(escape(title))</title>
        <link rel="stylesheet" href="\(escape(assets))style.css">
        <link rel="icon" href="\(escape(assets))icon.svg">
        </head>
        <body>
        \(body)
        </body>
        </html>

        """
    }
}
