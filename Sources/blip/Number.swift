/// Numbers from and to text, without a locale.
enum Number {
    /// A whole number with an optional k, M or G, which are powers of `base`.
    static func integer(_ text: String, base: Int) -> Int? {
        let powers: [Character: Int] = ["k": 1, "K": 1, "M": 2, "G": 3]
        guard let last = text.last, let power = powers[last] else { return Int(text) }
        let unit = (0..<power).reduce(1) { unit, _ in unit * base }
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

    /// "102,400".
    static func grouped(_ value: Int) -> String {
        var result = ""
        for (index, digit) in String(value).reversed().enumerated() {
            if index > 0 && index % 3 == 0 && digit != "-" { result = "," + result }
            result = String(digit) + result
        }
        return result
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
