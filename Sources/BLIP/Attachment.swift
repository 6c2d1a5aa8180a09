import CBLIP
import Synchronization

/// A module as it is registered with one connection, listener or runtime.
final class Attachment: @unchecked Sendable {
    /// Who has registered it: this is also the order in which modules are asked.
    enum Level: UInt8 {
        case library
        case runtime
        case listener
        case connection
    }

    let module: Module
    let level: Level
    private let removed = Atomic<Bool>(false)

    init(_ module: Module, _ level: Level) {
        self.module = module
        self.level = level
        module.beginUse()
    }

    /// No call begins from now on.
    func remove() { removed.store(true, ordering: .sequentiallyConsistent) }

    var isRemoved: Bool { removed.load(ordering: .sequentiallyConsistent) }

    /// Calls the observer, unless the module was removed.
    func call(_ connection: OpaquePointer?, _ what: UInt32, _ message: BLIPMessage?, _ status: blip_status) {
        guard !isRemoved, let observer = module.observer else { return }
        lend(message) { observer.function?(connection, what, $0, status, observer.context) }
    }
}
