/// An object that blip.h knows by a handle.
public protocol SlotOwner: AnyObject {
    static var handleKind: HandleKind { get }
    /// The slot in the handle table, 0 before the first handle; freed in `deinit`.
    var slot: UInt32 { get set }
    /// Whether `programReferencesDidEnd` is wanted.
    static var tellsLastReference: Bool { get }
    /// The last reference by handle is gone. The object may live on inside the library.
    func handleDidEnd()
    /// Of objects that want to know the program's last reference: changes their number, from −1 on because the first
    /// handle is the library's own, and gives it.
    func countProgramReferences(by change: Int) -> Int
    /// The program has given its last reference back.
    func programReferencesDidEnd()
}

extension SlotOwner {
    public static var tellsLastReference: Bool { false }
    public func handleDidEnd() {}
    public func countProgramReferences(by change: Int) -> Int { 1 }
    public func programReferencesDidEnd() {}
}
