/// An object that blip.h knows by a handle.
public protocol SlotOwner: AnyObject {
    static var handleKind: HandleKind { get }
    /// The slot in the handle table, 0 before the first handle; freed in `deinit`.
    var slot: UInt32 { get set }
    /// Whether `programReferencesDidEnd` is wanted.
    static var tellsLastReference: Bool { get }
    /// The last reference by handle is gone. The object may live on inside the library.
    func handleDidEnd()
    /// One reference is left after a release: the library's own, if the object keeps one.
    func programReferencesDidEnd()
}

extension SlotOwner {
    public static var tellsLastReference: Bool { false }
    public func handleDidEnd() {}
    public func programReferencesDidEnd() {}
}
