import CBLIP
import Synchronization

let probe = Atomic<Int>(0)

@c @implementation
public func blip_version_number() -> UInt32 { probe.wrappingAdd(1, ordering: .relaxed); return 1_000_000 }
