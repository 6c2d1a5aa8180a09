/// Sizes of files for people.
enum FileSize {
    static func text(_ bytes: UInt64) -> String {
        if bytes < 1000 { return "\(bytes) B" }
        var value = bytes
        for unit in ["kB", "MB", "GB", "TB", "PB"] {
            if value < 1_000_000 || unit == "PB" {
                // Two digits, or three if there are more.
                let tenths = (value + 50) / 100
                return tenths < 100 ? "\(tenths / 10).\(tenths % 10) \(unit)" : "\((value + 500) / 1000) \(unit)"
            }
            value /= 1000
        }
        return "\(bytes) B"
    }
}
