import CSystem
import Glibc

/// A folder of which files are served. Whatever path is asked for, nothing outside of it is reached: no "..", no symbolic
/// link, no encoding of either leads out, also when the tree is changed at the same moment.
final class RootFolder: Sendable {
    /// What lies at a path.
    struct Item {
        var descriptor: Int32
        var isFolder: Bool
        var size: UInt64
        var modified: Int
        var modifiedNanoseconds: Int
        var inode: UInt64
    }

    let descriptor: Int32

    /// Nil with the error if the folder cannot be opened.
    init?(_ path: String, _ code: inout Int32) {
        descriptor = Glibc.open(path, CSYSTEM_PATH | O_DIRECTORY | O_CLOEXEC)
        guard descriptor >= 0 else {
            code = errno
            return nil
        }
    }

    deinit { _ = Glibc.close(descriptor) }

    /// Opens a file or folder for reading; a negated errno on failure. Anything but these two, such as a device or a pipe,
    /// is not there.
    func open(_ path: FilePath) -> Result<Item, FileFailure> {
        let probe = csystem_open_beneath(descriptor, path.text, CSYSTEM_PATH | O_NOFOLLOW, 0)
        guard probe >= 0 else { return .failure(FileFailure(code: -probe)) }
        let kind = Self.kind(probe)
        _ = Glibc.close(probe)
        guard kind == S_IFREG || kind == S_IFDIR else { return .failure(FileFailure(code: ENOENT)) }
        let flags = O_RDONLY | O_NONBLOCK | O_NOCTTY | (kind == S_IFDIR ? O_DIRECTORY : 0)
        let opened = csystem_open_beneath(descriptor, path.text, flags, 0)
        guard opened >= 0 else { return .failure(FileFailure(code: -opened)) }
        var facts = stat()
        guard fstat(opened, &facts) == 0, facts.st_mode & S_IFMT == kind else {
            _ = Glibc.close(opened)
            return .failure(FileFailure(code: ENOENT))
        }
        return .success(
            Item(
                descriptor: opened, isFolder: kind == S_IFDIR, size: UInt64(max(0, facts.st_size)),
                modified: facts.st_mtim.tv_sec, modifiedNanoseconds: facts.st_mtim.tv_nsec, inode: UInt64(facts.st_ino))
        )
    }

    /// A descriptor of a folder to make and remove things in; the caller closes it.
    func openFolder(_ path: FilePath) -> Result<Int32, FileFailure> {
        let opened = csystem_open_beneath(descriptor, path.text, CSYSTEM_PATH | O_DIRECTORY, 0)
        return opened >= 0 ? .success(opened) : .failure(FileFailure(code: -opened))
    }

    private static func kind(_ descriptor: Int32) -> mode_t? {
        var facts = stat()
        return fstat(descriptor, &facts) == 0 ? facts.st_mode & S_IFMT : nil
    }
}
