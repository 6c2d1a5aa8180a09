import CBLIP
import HTTPService

/// How a listener serves files.
public final class FileOptions: SlotOwner, @unchecked Sendable {
    public static var handleKind: HandleKind { .fileOptions }
    public var slot: UInt32 = 0
    private(set) var values = FileService.Options()

    public init() {}

    deinit { HandleTable.freeSlot(slot) }

    public func setWritable(_ writable: Bool) { values.isWritable = writable }
    public func setReplace(_ replace: Bool) { values.mayReplace = replace }
    public func setHidden(_ hidden: Bool) { values.showsHidden = hidden }

    public func setUploadLimit(_ bytes: UInt64) -> blip_status {
        guard bytes > 0 else { return BLIP_ERROR_ARGUMENT }
        values.uploadLimit = bytes
        return BLIP_OK
    }
}
