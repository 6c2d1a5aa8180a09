/// Dates of cookies, which come in many forms (RFC 6265 §5.1.1).
enum CookieDate {
    /// Seconds since 1970; nil if there is no date in it.
    static func parse(_ text: some Collection<UInt8>) -> Int64? {
        var time: (Int, Int, Int)?
        var day: Int?
        var month: Int?
        var year: Int?
        for token in text.split(whereSeparator: isDelimiter) {
            if time == nil, let found = readTime(token) {
                time = found
            } else if day == nil, let found = readNumber(token, 1...2) {
                day = found
            } else if month == nil, let found = readMonth(token) {
                month = found
            } else if year == nil, let found = readNumber(token, 2...4) {
                year = found
            }
        }
        guard let time, let day, let month, var year else { return nil }
        if (70...99).contains(year) { year += 1900 } else if (0...69).contains(year) { year += 2000 }
        guard (1...days(in: month, year)).contains(day), year >= 1601, time.0 <= 23, time.1 <= 59, time.2 <= 59 else {
            return nil
        }
        return daysSinceEpoch(year, month, day) * 86_400 + Int64(time.0 * 3600 + time.1 * 60 + time.2)
    }

    private static func isDelimiter(_ byte: UInt8) -> Bool {
        switch byte {
        case 0x09, 0x20...0x2F, 0x3B...0x40, 0x5B...0x60, 0x7B...0x7E: true
        default: false
        }
    }

    /// A number with so many digits at the start, and no digit behind them.
    private static func readNumber(_ token: some Collection<UInt8>, _ digits: ClosedRange<Int>) -> Int? {
        let number = token.prefix { HTTPSyntax.isDigit($0) }
        guard digits.contains(number.count) else { return nil }
        return number.reduce(0) { $0 * 10 + Int($1 & 0x0F) }
    }

    private static func readTime(_ token: some Collection<UInt8>) -> (Int, Int, Int)? {
        let parts = token.split(separator: UInt8(ascii: ":"), maxSplits: 2, omittingEmptySubsequences: false)
        guard parts.count == 3, let hour = readWhole(parts[0]), let minute = readWhole(parts[1]),
            let second = readNumber(parts[2], 1...2)
        else { return nil }
        return (hour, minute, second)
    }

    private static func readWhole(_ token: some Collection<UInt8>) -> Int? {
        token.allSatisfy { HTTPSyntax.isDigit($0) } ? readNumber(token, 1...2) : nil
    }

    private static func readMonth(_ token: some Collection<UInt8>) -> Int? {
        guard token.count >= 3 else { return nil }
        let name = String(decoding: token.prefix(3).map { HTTPSyntax.lowercased($0) }, as: UTF8.self)
        let names = ["jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec"]
        return names.firstIndex(of: name).map { $0 + 1 }
    }

    private static func days(in month: Int, _ year: Int) -> Int {
        switch month {
        case 2: year % 4 == 0 && (year % 100 != 0 || year % 400 == 0) ? 29 : 28
        case 4, 6, 9, 11: 30
        default: 31
        }
    }

    /// Days from 1970-01-01; the year begins with March, so that the leap day is its last.
    private static func daysSinceEpoch(_ year: Int, _ month: Int, _ day: Int) -> Int64 {
        let years = Int64(month > 2 ? year : year - 1)
        let months = Int64((month + 9) % 12)
        return years * 365 + years / 4 - years / 100 + years / 400 + (months * 153 + 2) / 5 + Int64(day) - 719_469
    }
}
