import BLIPProtocol
import Foundation
import Testing

/// Engines and WebSocket parsers on a simulated network that delays, splits, joins, truncates, resets and stalls. Every
/// run is repeatable by its seed: `SIMULATION_SEED=n SIMULATION_RUNS=1 swift test --filter Simulation`.
@Suite("Simulated network", .serialized)
struct SimulationTests {
    private static func number(_ name: String, _ otherwise: UInt64) -> UInt64 {
        ProcessInfo.processInfo.environment[name].flatMap { UInt64($0) } ?? otherwise
    }

    /// Resident memory of the process in KiB.
    private static func resident() -> Int {
        let pages = (try? String(contentsOfFile: "/proc/self/statm", encoding: .utf8))?.split(separator: " ")
        return (pages?.dropFirst().first.flatMap { Int($0) } ?? 0) * 4
    }

    /// The number of messages that outlive the run.
    private func run(_ shape: World.Shape, seed: UInt64) throws -> (left: Int, delivered: [Int]) {
        var world: World? = World(shape, seed: seed)
        let census = world?.census
        try world?.run()
        let delivered = world?.delivered ?? []
        world = nil
        return (census?.alive ?? -1, delivered)
    }

    @Test("Whatever the network does, every request completes once, bodies are right and nothing is left")
    func random() throws {
        let first = Self.number("SIMULATION_SEED", UInt64.random(in: 0..<1 << 32))
        let runs = Self.number("SIMULATION_RUNS", 100)
        print("simulation: \(runs) runs from seed \(first)")
        var bytes = 0
        var resident = 0
        for seed in first..<first + runs {
            var random = Seeded(seed)
            let shape = World.Shape(random: &random)
            do {
                let outcome = try run(shape, seed: seed)
                bytes += outcome.delivered.reduce(0, +)
                #expect(outcome.left == 0, "seed \(seed): \(outcome.left) messages are left")
                if seed == first + runs / 10 { resident = Self.resident() }
            } catch {
                Issue.record("seed \(seed): \(error) (\(shape))")
                if runs > 1 { break }
            }
        }
        #expect(bytes > 0)
        // Alone in the process, as `make simulation` runs it, nothing else allocates meanwhile.
        if Self.number("SIMULATION_RUNS", 0) >= 1000 {
            let growth = Self.resident() - resident
            print("simulation: \(growth) KiB more resident memory than after a tenth of the runs")
            #expect(growth < 2048)
        }
        print("simulation: \(bytes >> 20) MiB came through")
    }

    /// A conversation small enough to be broken at each of its bytes.
    private static var short: World.Shape {
        var shape = World.Shape()
        shape.requests = 4
        shape.largestBody = 120
        shape.frame = 100
        return shape
    }

    @Test("The same seed gives the same run")
    func repeatable() throws {
        var random = Seeded(77)
        var shape = World.Shape(random: &random)
        shape.faults = [.none, .none]
        #expect(try run(shape, seed: 5).delivered == run(shape, seed: 5).delivered)
    }

    @Test(
        "A fault at any byte of a conversation",
        arguments: ["cut", "truncated", "reset", "stalled for a while", "stalled"])
    func everyByte(kind: String) throws {
        let stride = Int(Self.number("SIMULATION_STRIDE", 7))
        let whole = try run(Self.short, seed: 3).delivered
        #expect(whole.allSatisfy { $0 > 150 })
        let offset = kind.utf8.count % stride
        for side in 0..<2 {
            for at in Swift.stride(from: offset, through: whole[side], by: stride) {
                var shape = Self.short
                switch kind {
                case "cut": shape.cuts[side] = at
                case "truncated": shape.faults[side] = .truncated(at: at)
                case "reset": shape.faults[side] = .reset(at: at)
                case "stalled for a while": shape.faults[side] = .stalled(at: at, until: 700)
                default: shape.faults[side] = .stalled(at: at, until: .max)
                }
                do {
                    let outcome = try run(shape, seed: 3)
                    #expect(outcome.left == 0, "\(kind) at \(at): \(outcome.left) messages are left")
                } catch {
                    Issue.record("\(kind) at \(at): \(error)")
                    return
                }
            }
        }
    }
}
