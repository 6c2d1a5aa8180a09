import BLIPProtocol
import CBLIP
import CSystem
import Synchronization
import Transport

/// What looks like a pointer in blip.h is a number: kind, fork epoch, generation and slot. The table holds the slots.
///
/// ## Overview
/// A handle is valid while its slot's generation equals the handle's and the slot's count is above zero. Taking a
/// reference is one compare-and-swap; slots are never unmapped, so that any number may be looked up safely from any
/// thread. When the count falls to zero the generation is raised in the same step, which makes all copies of the
/// handle invalid at once.
///
/// ## Layout of a handle
/// Bits 59…63 kind, 55…58 fork epoch, 24…54 generation, 0…23 slot.
public enum HandleTable {
    struct Slot: ~Copyable {
        /// Generation (upper half), whether the object is retained for the references (bit 31) and their number.
        let state = Atomic<UInt64>(1 << 32)
        /// Next free slot, as index + 1.
        let next = Atomic<UInt32>(0)
        /// The kind of the object.
        let kind = Atomic<UInt8>(0)
        /// The object. Retained once while the program has references; a handle that is only lent to a callback is kept
        /// alive by its lender.
        var object: UnsafeMutableRawPointer?
    }

    private static let generationMask: UInt64 = 0x7FFF_FFFF
    private static let retained: UInt64 = 1 << 31
    private static let countMask: UInt64 = (1 << 31) - 1
    private static let chunkShift = 12
    private static let chunkSize = 1 << chunkShift
    private static let chunkCount = Int(CSYSTEM_CHUNKS)

    private struct Storage: ~Copyable, @unchecked Sendable {
        let used = Atomic<UInt32>(1)
        /// Tag (upper half) and index + 1 of the first free slot.
        let free = Atomic<UInt64>(0)
        let growth = Locked(())
    }

    private static let storage = Storage()

    /// Chunks of slots, in a table of C's: look-ups then need no check whether a Swift global is initialised.
    @inline(__always)
    private static var chunks: UnsafeMutablePointer<Atomic<UnsafeMutableRawPointer?>> {
        UnsafeMutableRawPointer(csystem_chunk_table()).assumingMemoryBound(to: Atomic<UnsafeMutableRawPointer?>.self)
    }

    /// How many times the process has forked since the library was first used, as part of each handle.
    @inline(__always)
    public static var epoch: UInt64 { csystem_fork_count() }

    /// Around a fork: no thread changes the table meanwhile.
    static func lock() { storage.growth.lock() }
    static func unlock() { storage.growth.unlock() }

    /// In a forked child: every handle of the parent becomes invalid (`BLIP_ERROR_FORKED`).
    public static func processDidFork() {
        csystem_count_fork()
    }

    // MARK: Slots

    @inline(__always)
    private static func slot(_ index: UInt32) -> UnsafeMutablePointer<Slot>? {
        let chunk = chunks[Int(index) >> chunkShift].load(ordering: .acquiring)
        guard let chunk else { return nil }
        return chunk.assumingMemoryBound(to: Slot.self) + (Int(index) & (chunkSize - 1))
    }

    /// Takes a slot for an object; nil when 16 million objects exist at once.
    static func allocateSlot(for object: some SlotOwner) -> UInt32? {
        guard let index = popFree() ?? grow(), let slot = slot(index) else { return nil }
        // What other threads did with the slot's former object lies behind: their last step was on its count.
        _ = slot.pointee.state.load(ordering: .acquiring)
        slot.pointee.object = Unmanaged.passUnretained(object).toOpaque()
        slot.pointee.kind.store(type(of: object).handleKind.rawValue, ordering: .releasing)
        return index
    }

    /// Gives a slot back. Its count must be zero.
    public static func freeSlot(_ index: UInt32) {
        guard index != 0, let slot = slot(index) else { return }
        var head = storage.free.load(ordering: .acquiring)
        while true {
            slot.pointee.next.store(UInt32(truncatingIfNeeded: head), ordering: .relaxed)
            let new = ((head >> 32) &+ 1) << 32 | UInt64(index)
            let (done, seen) = storage.free.compareExchange(
                expected: head, desired: new, ordering: .acquiringAndReleasing)
            if done { return }
            head = seen
        }
    }

    private static func popFree() -> UInt32? {
        var head = storage.free.load(ordering: .acquiring)
        while true {
            let index = UInt32(truncatingIfNeeded: head)
            guard index != 0, let slot = slot(index) else { return nil }
            let new = ((head >> 32) &+ 1) << 32 | UInt64(slot.pointee.next.load(ordering: .relaxed))
            let (done, seen) = storage.free.compareExchange(
                expected: head, desired: new, ordering: .acquiringAndReleasing)
            if done { return index }
            head = seen
        }
    }

    /// A slot that was never used; the lock is for a new chunk only.
    private static func grow() -> UInt32? {
        let index = storage.used.wrappingAdd(1, ordering: .relaxed).oldValue
        guard index < UInt32(chunkCount * chunkSize) else {
            storage.used.wrappingSubtract(1, ordering: .relaxed)
            return nil
        }
        if slot(index) == nil { makeChunk(Int(index) >> chunkShift) }
        return index
    }

    @inline(never)
    private static func makeChunk(_ chunkIndex: Int) {
        storage.growth.withLock { _ in
            guard chunks[chunkIndex].load(ordering: .relaxed) == nil else { return }
            let chunk = UnsafeMutablePointer<Slot>.allocate(capacity: chunkSize)
            for position in 0..<chunkSize { (chunk + position).initialize(to: Slot()) }
            chunks[chunkIndex].store(UnsafeMutableRawPointer(chunk), ordering: .releasing)
        }
    }

    /// No handle of this slot is valid.
    static func isIdle(_ index: UInt32) -> Bool {
        guard let slot = slot(index) else { return true }
        return slot.pointee.state.load(ordering: .acquiring) & countMask == 0
    }

    // MARK: References

    /// The upper bits of a handle: its kind, and how often the process had forked.
    @inline(__always)
    private static func mark(_ kind: HandleKind) -> UInt64 { UInt64(kind.rawValue) << 4 | (epoch & 15) }

    @inline(__always)
    private static func handle(_ index: UInt32, _ generation: UInt64, _ kind: HandleKind) -> OpaquePointer? {
        let bits = mark(kind) << 55 | (generation & generationMask) << 24 | UInt64(index)
        return OpaquePointer(bitPattern: UInt(bits))
    }

    /// A handle of an object that owns slot `index`, with one reference more. The caller must hold the object.
    @inline(__always)
    public static func expose(_ object: AnyObject, slot index: UInt32, kind: HandleKind) -> OpaquePointer? {
        guard let slot = slot(index) else { return nil }
        var state = slot.pointee.state.load(ordering: .relaxed)
        while true {
            let isFirst = state & countMask == 0
            if isFirst { _ = Unmanaged.passRetained(object) }
            let (done, seen) = slot.pointee.state.compareExchange(
                expected: state, desired: (state &+ 1) | (isFirst ? retained : 0), ordering: .acquiringAndReleasing)
            if done { return handle(index, state >> 32, kind) }
            if isFirst { Unmanaged.passUnretained(object).release() }
            state = seen
        }
    }

    /// Gives an object its slot now, before several threads may want to lend it for the first time.
    static func prepare(_ object: some SlotOwner) {
        guard object.slot == 0, let index = allocateSlot(for: object) else { return }
        object.slot = index
    }

    /// A handle for the time of a callback. The caller holds the object and calls `takeBack` behind the callback; no
    /// reference of the object is counted unless the program keeps the handle.
    @inline(__always)
    static func lend(_ object: some SlotOwner) -> OpaquePointer? {
        if object.slot == 0 {
            guard let index = allocateSlot(for: object) else { return nil }
            object.slot = index
        }
        guard let slot = slot(object.slot) else { return nil }
        var state = slot.pointee.state.load(ordering: .relaxed)
        while true {
            let (done, seen) = slot.pointee.state.compareExchange(
                expected: state, desired: state &+ 1, ordering: .acquiringAndReleasing)
            if done { return handle(object.slot, state >> 32, type(of: object).handleKind) }
            state = seen
        }
    }

    /// Ends a `lend`.
    @inline(__always)
    static func takeBack<T: SlotOwner>(_ handle: OpaquePointer?, _ object: T) {
        guard handle != nil, let slot = slot(object.slot) else { return }
        let generation = generation(handle)
        var state = slot.pointee.state.load(ordering: .relaxed)
        while true {
            let count = state & countMask
            guard count != 0, state >> 32 == generation else { return }
            let mustRetain = count > 1 && state & retained == 0
            if mustRetain { _ = Unmanaged.passRetained(object) }
            let next =
                count == 1 ? ((generation &+ 1) & generationMask) << 32 : (state &- 1) | (mustRetain ? retained : 0)
            let (done, seen) = slot.pointee.state.compareExchange(
                expected: state, desired: next, ordering: .acquiringAndReleasing)
            if done { break }
            if mustRetain { Unmanaged.passUnretained(object).release() }
            state = seen
        }
        guard state & countMask == 1 else { return }
        object.handleDidEnd()
        if state & retained != 0 { Unmanaged.passUnretained(object).release() }
    }

    /// A handle for a new object, with one reference.
    public static func create(_ object: some SlotOwner) -> OpaquePointer? {
        if object.slot == 0 {
            guard let index = allocateSlot(for: object) else { return nil }
            object.slot = index
        }
        if type(of: object).tellsLastReference { _ = object.countProgramReferences(by: 1) }
        return expose(object, slot: object.slot, kind: type(of: object).handleKind)
    }

    /// Takes a reference. Nil if the handle is not valid or of another kind.
    @inline(__always)
    static func acquire(_ handle: OpaquePointer?, _ kind: HandleKind) -> UnsafeMutablePointer<Slot>? {
        let bits = UInt64(UInt(bitPattern: handle))
        guard bits >> 55 == mark(kind),
            let slot = slot(UInt32(truncatingIfNeeded: bits & 0xFF_FFFF))
        else { return nil }
        let generation = (bits >> 24) & generationMask
        var state = slot.pointee.state.load(ordering: .relaxed)
        while true {
            let count = state & countMask
            guard state >> 32 == generation, count != 0, count != countMask,
                slot.pointee.kind.load(ordering: .relaxed) == kind.rawValue
            else { return nil }
            let (done, seen) = slot.pointee.state.compareExchange(
                expected: state, desired: state &+ 1, ordering: .acquiring)
            if done { return slot }
            state = seen
        }
    }

    /// Gives a reference back; returns how many are left, or `UInt64.max` if the handle had ended already or nobody has
    /// to release the object.
    @inline(__always)
    @discardableResult
    static func drop(_ slot: UnsafeMutablePointer<Slot>, generation: UInt64) -> UInt64 {
        var state = slot.pointee.state.load(ordering: .relaxed)
        while true {
            let count = state & countMask
            guard count != 0, state >> 32 == generation else { return .max }
            let next = count == 1 ? ((generation &+ 1) & generationMask) << 32 : state &- 1
            let (done, seen) = slot.pointee.state.compareExchange(
                expected: state, desired: next, ordering: .acquiringAndReleasing)
            // A program that releases what it was only lent takes nothing away from the lender.
            if done { return count == 1 && state & retained == 0 ? .max : count - 1 }
            state = seen
        }
    }

    /// Why `acquire` failed.
    @inline(never)
    public static func refusal(_ handle: OpaquePointer?) -> blip_status {
        let bits = UInt64(UInt(bitPattern: handle))
        let forks = (epoch &- (bits >> 55)) & 15
        guard HandleKind(rawValue: UInt8(truncatingIfNeeded: bits >> 59)) != nil, forks > 0, forks <= epoch,
            slot(UInt32(truncatingIfNeeded: bits & 0xFF_FFFF)) != nil
        else { return BLIP_ERROR_HANDLE }
        return BLIP_ERROR_FORKED
    }

    @inline(__always)
    private static func generation(_ handle: OpaquePointer?) -> UInt64 {
        (UInt64(UInt(bitPattern: handle)) >> 24) & generationMask
    }

    /// Runs `body` with the object behind a handle, which stays alive meanwhile.
    @inline(__always)
    public static func with<T: SlotOwner>(_ handle: OpaquePointer?, _ body: (T) -> blip_status) -> blip_status {
        if let object = csystem_lent_object(UInt(bitPattern: handle)),
            UInt64(UInt(bitPattern: handle)) >> 59 == UInt64(T.handleKind.rawValue)
        {
            return Unmanaged<T>.fromOpaque(object)._withUnsafeGuaranteedRef { body($0) }
        }
        guard let slot = acquire(handle, T.handleKind), let object = slot.pointee.object else {
            return refusal(handle)
        }
        let status = Unmanaged<T>.fromOpaque(object)._withUnsafeGuaranteedRef { body($0) }
        if drop(slot, generation: generation(handle)) == 0 { finalRelease(Unmanaged<T>.fromOpaque(object)) }
        return status
    }

    /// The object behind a handle, retained; nil if the handle is not valid.
    public static func object<T: SlotOwner>(_ handle: OpaquePointer?) -> T? {
        var result: T?
        _ = with(handle) { (object: T) in
            result = object
            return BLIP_OK
        }
        return result
    }

    /// One more reference for a valid handle; nil otherwise.
    public static func retain<T: SlotOwner>(_ handle: OpaquePointer?, as type: T.Type) -> OpaquePointer? {
        guard let slot = acquire(handle, T.handleKind), let object = slot.pointee.object else { return nil }
        if T.tellsLastReference {
            _ = Unmanaged<T>.fromOpaque(object)._withUnsafeGuaranteedRef { $0.countProgramReferences(by: 1) }
        }
        return handle
    }

    /// One more reference for a valid handle that is not the program's; given back by `releaseOwn`.
    static func retainOwn<T: SlotOwner>(_ handle: OpaquePointer?, as type: T.Type) -> OpaquePointer? {
        acquire(handle, T.handleKind) == nil ? nil : handle
    }

    /// Gives a program's reference back. A handle that is not valid is ignored.
    public static func release<T: SlotOwner>(_ handle: OpaquePointer?, as type: T.Type) {
        if T.tellsLastReference {
            releaseCounted(handle, as: T.self)
        } else {
            releaseOwn(handle, as: T.self)
        }
    }

    /// The count of handles cannot tell the last of the program's: calls that are under way hold references, too, and
    /// with many threads some always are.
    private static func releaseCounted<T: SlotOwner>(_ handle: OpaquePointer?, as type: T.Type) {
        guard let slot = acquire(handle, T.handleKind), let object = slot.pointee.object else { return }
        let reference = Unmanaged<T>.fromOpaque(object)
        let left = reference._withUnsafeGuaranteedRef { $0.countProgramReferences(by: -1) }
        if left < 0 {
            // Given back once too often: what is left is the library's.
            _ = reference._withUnsafeGuaranteedRef { $0.countProgramReferences(by: 1) }
        } else {
            if left == 0 { reference._withUnsafeGuaranteedRef { $0.programReferencesDidEnd() } }
            drop(slot, generation: generation(handle))
        }
        if drop(slot, generation: generation(handle)) == 0 { finalRelease(reference) }
    }

    /// Gives a reference of the library's back, or one to an object that does not want to know of its last.
    static func releaseOwn<T: SlotOwner>(_ handle: OpaquePointer?, as type: T.Type) {
        let bits = UInt64(UInt(bitPattern: handle))
        guard bits >> 55 == mark(T.handleKind),
            let slot = slot(UInt32(truncatingIfNeeded: bits & 0xFF_FFFF)),
            slot.pointee.kind.load(ordering: .relaxed) == T.handleKind.rawValue, let object = slot.pointee.object
        else { return }
        // Read before the reference is given back: while it is held the slot keeps its object.
        if drop(slot, generation: (bits >> 24) & generationMask) == 0 { finalRelease(Unmanaged<T>.fromOpaque(object)) }
    }

    @inline(__always)
    static func finalRelease<T: SlotOwner>(_ reference: Unmanaged<T>) {
        reference._withUnsafeGuaranteedRef { $0.handleDidEnd() }
        reference.release()
    }
}
