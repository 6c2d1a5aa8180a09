/// One server that a SRV record names (RFC 2782).
public struct ServiceTarget: Sendable, Equatable {
    public let host: String
    public let port: UInt16
    /// Lower ones are tried first.
    public let priority: UInt16
    /// The share of what goes to this priority.
    public let weight: UInt16

    public init(host: String, port: UInt16, priority: UInt16, weight: UInt16) {
        self.host = host
        self.port = port
        self.priority = priority
        self.weight = weight
    }

    /// The order in which to try them: by priority, and within one by lot, weighted (RFC 2782, "Usage rules").
    public static func ordered(
        _ targets: [ServiceTarget], using generator: inout some RandomNumberGenerator
    ) -> [ServiceTarget] {
        var result = [ServiceTarget]()
        for priority in Set(targets.map(\.priority)).sorted() {
            // Those without weight first, so that they have a chance.
            var left = targets.filter { $0.priority == priority }.sorted { $0.weight < $1.weight }
            while !left.isEmpty {
                let sum = left.reduce(0) { $0 + Int($1.weight) }
                let lot = Int.random(in: 0...sum, using: &generator)
                var running = 0
                let index = left.firstIndex { target in
                    running += Int(target.weight)
                    return running >= lot
                }
                result.append(left.remove(at: index ?? 0))
            }
        }
        return result
    }
}
