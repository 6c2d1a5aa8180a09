import Synchronization

/// Received messages that the program has not let go of: what they hold in memory, of one connection. Outlives it.
///
/// Small messages are not counted here, so that no atomic is touched for them.
final class IncomingMemory: @unchecked Sendable {
    /// From so many bytes on a message is counted.
    static let least = 4096

    private let bytes = Atomic<Int>(0)
    private let runtime: Runtime

    init(runtime: Runtime) { self.runtime = runtime }

    var held: Int { bytes.load(ordering: .relaxed) }

    func add(_ count: Int) {
        bytes.add(count, ordering: .relaxed)
        runtime.countMemory(count)
    }
}
