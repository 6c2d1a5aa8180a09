import CBLIP

/// Requests that are to be answered later, in a binary heap by time; one thread answers those that are due.
final class Sleepers: @unchecked Sendable {
    private static let limit = 100_000

    private struct Sleeper {
        let time: UInt64
        let request: OpaquePointer
    }

    // Guarded by the monitor.
    private let monitor = Monitor()
    private var heap: [Sleeper] = []
    private var hasThread = false

    /// False when there are too many already.
    func add(_ request: OpaquePointer, wakingAt time: UInt64) -> Bool {
        monitor.locked {
            guard heap.count < Self.limit, hasThread || startThread() else { return false }
            _ = blip_message_retain(request)
            heap.append(Sleeper(time: time, request: request))
            siftUp()
            monitor.signal()
            return true
        }
    }

    private func startThread() -> Bool {
        hasThread = Thread.start { [self] in run() }
        return hasThread
    }

    private func run() {
        while true {
            let due: OpaquePointer? = monitor.locked {
                guard let first = heap.first else {
                    monitor.wait(until: nil)
                    return nil
                }
                guard first.time <= Clock.now else {
                    monitor.wait(until: first.time)
                    return nil
                }
                removeFirst()
                return first.request
            }
            if let due {
                _ = blip_message_respond_empty(due)
                blip_message_release(due)
            }
        }
    }

    private func siftUp() {
        var child = heap.count - 1
        while child > 0 {
            let parent = (child - 1) / 2
            guard heap[child].time < heap[parent].time else { return }
            heap.swapAt(child, parent)
            child = parent
        }
    }

    private func removeFirst() {
        let last = heap.removeLast()
        guard !heap.isEmpty else { return }
        heap[0] = last
        var parent = 0
        while true {
            var least = parent
            for child in [2 * parent + 1, 2 * parent + 2] where child < heap.count {
                if heap[child].time < heap[least].time { least = child }
            }
            guard least != parent else { return }
            heap.swapAt(least, parent)
            parent = least
        }
    }
}
