/// Options of a runtime.
public final class RuntimeOptions: SlotOwner, @unchecked Sendable {
    public static var handleKind: HandleKind { .runtimeOptions }
    public var slot: UInt32 = 0
    public var threads: UInt32 = 1
    public var queue: EventQueue?
    public var memoryLimit = 0

    public init() {}

    deinit { HandleTable.freeSlot(slot) }
}
