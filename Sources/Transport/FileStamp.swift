import CSystem

/// Tells whether a file is still the one that was read.
struct FileStamp: Hashable, Sendable {
    private let path: String
    private let device: UInt64
    private let inode: UInt64
    private let size: UInt64
    private let changed: UInt64

    /// All zero if there is no such file.
    init(_ path: String) {
        var values: (UInt64, UInt64, UInt64, UInt64) = (0, 0, 0, 0)
        csystem_file_stamp(path, &values.0, &values.1, &values.2, &values.3)
        self.path = path
        (device, inode, size, changed) = values
    }
}
