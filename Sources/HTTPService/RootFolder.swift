import CSystem
import Glibc

/// A folder of which files are served. Whatever path is asked for, nothing outside of it is reached: no "..", no symbolic
/// link, no encoding of either leads out, also when the tree is changed at the same moment.
final class RootFolder: Sendable {
    /// What lies at a path.
    struct Item {
        /// For reading.
        var descriptor: Int32
        var facts: FileFacts
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

    /// Looks at a file or folder without opening it. Anything but these two, such as a device or a pipe, is not there.
    func look(at path: FilePath) -> Result<FileFacts, FileFailure> {
        let probe = csystem_open_beneath(descriptor, path.text, CSYSTEM_PATH | O_NOFOLLOW, 0)
        guard probe >= 0 else { return .failure(FileFailure(code: -probe)) }
        defer { _ = Glibc.close(probe) }
        return FileFacts(probe).map { .success($0) } ?? .failure(FileFailure(code: ENOENT))
    }

    /// Opens a file or folder for reading, after a look at it: opening a device can do something.
    func open(_ path: FilePath) -> Result<Item, FileFailure> {
        look(at: path).flatMap { seen in
            let flags = O_RDONLY | O_NONBLOCK | O_NOCTTY | (seen.isFolder ? O_DIRECTORY : 0)
            let opened = csystem_open_beneath(descriptor, path.text, flags, 0)
            guard opened >= 0 else { return .failure(FileFailure(code: -opened)) }
            guard let facts = FileFacts(opened), facts.isFolder == seen.isFolder else {
                _ = Glibc.close(opened)
                return .failure(FileFailure(code: ENOENT))
            }
            return .success(Item(descriptor: opened, facts: facts))
        }
    }

    /// A descriptor of a folder to make and remove things in; the caller closes it.
    func openFolder(_ path: FilePath) -> Result<Int32, FileFailure> {
        let opened = csystem_open_beneath(descriptor, path.text, CSYSTEM_PATH | O_DIRECTORY, 0)
        return opened >= 0 ? .success(opened) : .failure(FileFailure(code: -opened))
    }
}
