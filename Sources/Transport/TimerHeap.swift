/// The timers of an event loop, the earliest first: a binary heap whose timers know their places.
struct TimerHeap {
    private var timers = ContiguousArray<LoopTimer>()

    var count: Int { timers.count }
    var first: LoopTimer? { timers.first }

    /// Adds the timer, or moves it if it is here already.
    mutating func schedule(_ timer: LoopTimer, at deadline: UInt64) {
        timer.deadline = deadline
        if contains(timer) {
            let index = Int(timer.heapIndex)
            siftDown(siftUp(index))
        } else {
            timer.heapIndex = Int32(truncatingIfNeeded: timers.count)
            timers.append(timer)
            _ = siftUp(timers.count - 1)
        }
    }

    mutating func remove(_ timer: LoopTimer) {
        guard contains(timer) else { return }
        let index = Int(timer.heapIndex)
        timer.heapIndex = -1
        let last = timers.removeLast()
        guard index < timers.count else { return }
        timers[index] = last
        last.heapIndex = Int32(truncatingIfNeeded: index)
        siftDown(siftUp(index))
    }

    mutating func removeAll() {
        for timer in timers { timer.heapIndex = -1 }
        timers = []
    }

    private func contains(_ timer: LoopTimer) -> Bool {
        let index = Int(timer.heapIndex)
        return index >= 0 && index < timers.count && timers[index] === timer
    }

    private mutating func siftUp(_ start: Int) -> Int {
        var index = start
        while index > 0 {
            let parent = (index - 1) / 2
            guard timers[index].deadline < timers[parent].deadline else { break }
            swap(index, parent)
            index = parent
        }
        return index
    }

    private mutating func siftDown(_ start: Int) {
        var index = start
        while true {
            var least = index
            let left = 2 * index + 1
            if left < timers.count, timers[left].deadline < timers[least].deadline { least = left }
            if left + 1 < timers.count, timers[left + 1].deadline < timers[least].deadline { least = left + 1 }
            guard least != index else { return }
            swap(index, least)
            index = least
        }
    }

    private mutating func swap(_ a: Int, _ b: Int) {
        timers.swapAt(a, b)
        timers[a].heapIndex = Int32(truncatingIfNeeded: a)
        timers[b].heapIndex = Int32(truncatingIfNeeded: b)
    }
}
