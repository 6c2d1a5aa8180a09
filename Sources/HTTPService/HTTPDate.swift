import Glibc

/// Dates of HTTP (RFC 9110 §5.6.7), in seconds since 1970.
enum HTTPDate {
    private static let days = ["Sun", "Mon", "Tue", "Wed", "Thu", "Fri", "Sat"]
    private static let months = [
        "Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec",
    ]

    /// As "Sun, 06 Nov 1994 08:49:37 GMT".
    static func text(_ seconds: Int) -> String {
        var time = time_t(seconds)
        var parts = tm()
        guard gmtime_r(&time, &parts) != nil, days.indices.contains(Int(parts.tm_wday)),
            months.indices.contains(Int(parts.tm_mon)), parts.tm_year >= -900, parts.tm_year < 8100
        else { return text(0) }
        let date = "\(two(parts.tm_mday)) \(months[Int(parts.tm_mon)]) \(Int(parts.tm_year) + 1900)"
        return
            "\(days[Int(parts.tm_wday)]), \(date) \(two(parts.tm_hour)):\(two(parts.tm_min)):\(two(parts.tm_sec)) GMT"
    }

    /// As "2026-11-30 12:05", in UTC.
    static func short(_ seconds: Int) -> String {
        var time = time_t(seconds)
        var parts = tm()
        guard gmtime_r(&time, &parts) != nil, parts.tm_year >= -900, parts.tm_year < 8100 else { return "" }
        let date = "\(Int(parts.tm_year) + 1900)-\(two(parts.tm_mon + 1))-\(two(parts.tm_mday))"
        return "\(date) \(two(parts.tm_hour)):\(two(parts.tm_min))"
    }

    private static func two(_ number: Int32) -> String { number < 10 ? "0\(number)" : "\(number)" }

    /// Any of the three forms; nil if it is none of them.
    static func parse(_ text: String) -> Int? {
        let words = text.split(whereSeparator: { " ,-".contains($0) }).map(String.init)
        // Weekday, day, month, year, time, GMT; or, of asctime, weekday, month, day, time, year.
        guard words.count == 6 || words.count == 5 else { return nil }
        let isOld = words.count == 5
        guard isOld || words[5] == "GMT", let month = months.firstIndex(of: isOld ? words[1] : words[2]),
            let day = number(isOld ? words[2] : words[1], 1...31),
            var year = number(isOld ? words[4] : words[3], 0...9999)
        else { return nil }
        if !isOld, words[3].utf8.count == 2 { year += year < 70 ? 2000 : 1900 }
        let clock = (isOld ? words[3] : words[4]).split(separator: ":", omittingEmptySubsequences: false).map(
            String.init)
        guard clock.count == 3, let hour = number(clock[0], 0...23), let minute = number(clock[1], 0...59),
            let second = number(clock[2], 0...60)
        else { return nil }
        var parts = tm()
        parts.tm_year = Int32(year - 1900)
        parts.tm_mon = Int32(month)
        parts.tm_mday = Int32(day)
        parts.tm_hour = Int32(hour)
        parts.tm_min = Int32(minute)
        parts.tm_sec = Int32(second)
        return timegm(&parts)
    }

    private static func number(_ text: String, _ range: ClosedRange<Int>) -> Int? {
        guard !text.isEmpty, text.utf8.count <= 4, text.utf8.allSatisfy({ (0x30...0x39).contains($0) }),
            let value = Int(text), range.contains(value)
        else { return nil }
        return value
    }
}
