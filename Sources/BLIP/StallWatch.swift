/// Looks after a connection whose program has set a time for reading or writing: whether bytes move while they should.
///
/// It is asked a few times within the shorter of the two times, so that no path of messages has to say what it does; a
/// stall is noticed at the latest a quarter of the time after it is due.
final class StallWatch {
    /// One way.
    struct Way {
        /// Nanoseconds; 0: it is not looked after.
        let timeout: UInt64
        /// What the program has granted beyond that.
        var extra: UInt64 = 0
        /// When progress was last seen, or nothing was under way; nil: not begun.
        private var since: UInt64?
        private var mark: (UInt64, Int) = (0, 0)

        init(_ timeout: UInt64) {
            self.timeout = timeout
        }

        /// How long nothing has moved, if that is too long.
        mutating func stall(isUnderWay: Bool, mark new: (UInt64, Int), now: UInt64) -> UInt64? {
            guard timeout > 0 else { return nil }
            guard isUnderWay, let since, new == mark else {
                since = now
                mark = new
                extra = 0
                return nil
            }
            let elapsed = now &- since
            return elapsed >= timeout &+ extra ? elapsed : nil
        }
    }

    var reading: Way
    var writing: Way
    let interval: UInt64
    var next: UInt64

    /// Nil if neither way is to be looked after. Times in nanoseconds.
    init?(reading: UInt64, writing: UInt64, now: UInt64) {
        let times = [reading, writing].filter { $0 > 0 && $0 < .max / 4 }
        guard let shortest = times.min() else { return nil }
        self.reading = Way(times.contains(reading) ? reading : 0)
        self.writing = Way(times.contains(writing) ? writing : 0)
        interval = max(shortest / 4, 5_000_000)
        next = now &+ interval
    }
}
