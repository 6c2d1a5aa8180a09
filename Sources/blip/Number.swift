/// Numbers from and to text, without a locale.
enum Number {
    /// A whole number with an optional k, M or G (powers of 1,024).
    static func integer(_ text: String) -> Int? {
        let units: [Character: Int] = ["k": 1 << 10, "K": 1 << 10, "M": 1 << 20, "G": 1 << 30]
        guard let last = text.last, let unit = units[last] else { return Int(text) }
        guard let number = Int(text.dropLast()) else { return nil }
        let (product, overflow) = number.multipliedReportingOverflow(by: unit)
        return overflow ? nil : product
    }

    /// With exactly that many decimals, rounded.
    static func fixed(_ value: Double, _ decimals: Int) -> String {
        guard value.isFinite, abs(value) < 1e15 else { return "\(value)" }
        var scale = 1.0
        for _ in 0..<decimals { scale *= 10 }
        let scaled = (abs(value) * scale).rounded()
        guard let whole = UInt64(exactly: scaled) else { return "\(value)" }
        var digits = String(whole)
        while digits.utf8.count <= decimals { digits = "0" + digits }
        let sign = value < 0 && whole != 0 ? "-" : ""
        guard decimals > 0 else { return sign + digits }
        return "\(sign)\(digits.dropLast(decimals)).\(digits.suffix(decimals))"
    }

    /// "742 bytes", "13.1 MB".
    static func bytes(_ count: UInt64) -> String {
        let units: [(Double, String)] = [(1e12, "TB"), (1e9, "GB"), (1e6, "MB"), (1e3, "kB")]
        for (size, name) in units where Double(count) >= size {
            return "\(fixed(Double(count) / size, 1)) \(name)"
        }
        return "\(count) bytes"
    }
}
