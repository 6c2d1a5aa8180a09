import Glibc

/// What is known of a file or folder without reading it.
struct FileFacts {
    let isFolder: Bool
    let size: UInt64
    /// Seconds since 1970, and what is behind the point.
    let modified: Int
    private let nanoseconds: Int
    private let inode: UInt64

    /// Nil for anything but a file or a folder, such as a device or a pipe.
    init?(_ status: stat) {
        let kind = status.st_mode & S_IFMT
        guard kind == S_IFREG || kind == S_IFDIR else { return nil }
        isFolder = kind == S_IFDIR
        size = UInt64(max(0, status.st_size))
        modified = status.st_mtim.tv_sec
        nanoseconds = status.st_mtim.tv_nsec
        inode = UInt64(status.st_ino)
    }

    /// Of the file behind a descriptor.
    init?(_ descriptor: Int32) {
        var status = stat()
        guard fstat(descriptor, &status) == 0 else { return nil }
        self.init(status)
    }

    /// The entity tag of the file as it is (RFC 9110 §8.8.3).
    var tag: String { tag("") }
    /// That of its compressed form.
    var gzipTag: String { tag("-gzip") }

    private func tag(_ suffix: String) -> String {
        let time = UInt64(bitPattern: Int64(modified)) &* 1_000_000_000 &+ UInt64(max(0, nanoseconds))
        return "\"\(HexDigit.text(inode))-\(HexDigit.text(size))-\(HexDigit.text(time))\(suffix)\""
    }
}
