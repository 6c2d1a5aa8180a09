import CSystem
import Glibc

/// Writes an uploaded file: under a hidden name at first, and under its own when it is whole, so that nobody ever sees a
/// part of it.
final class FileWriter {
    private let folder: Int32
    private let file: Int32
    private let name: [UInt8]
    private let temporary: [UInt8]
    private let mayReplace: Bool
    private let limit: UInt64
    private var size: UInt64 = 0
    /// There was a file of that name when this one began.
    let replaces: Bool
    private var isDone = false

    private init(
        folder: Int32, file: Int32, name: [UInt8], temporary: [UInt8], mayReplace: Bool, replaces: Bool,
        limit: UInt64
    ) {
        self.folder = folder
        self.file = file
        self.name = name
        self.temporary = temporary
        self.mayReplace = mayReplace
        self.replaces = replaces
        self.limit = limit
    }

    deinit {
        if !isDone { _ = temporary.withCString { unlinkat(folder, $0, 0) } }
        _ = Glibc.close(file)
        _ = Glibc.close(folder)
    }

    static func make(in parent: FilePath, name: [UInt8], service: FileService) -> Result<FileWriter, FileFailure> {
        guard FilePath.isName(name), service.options.showsHidden || name.first != UInt8(ascii: ".") else {
            return .failure(FileFailure(code: EPERM))
        }
        switch service.root.openFolder(parent) {
        case .failure(let failure): return .failure(failure)
        case .success(let folder):
            var facts = stat()
            let exists = name.withCString { fstatat(folder, $0, &facts, AT_SYMLINK_NOFOLLOW) } == 0
            if exists, !service.options.mayReplace || facts.st_mode & S_IFMT != S_IFREG {
                _ = Glibc.close(folder)
                return .failure(FileFailure(code: EEXIST))
            }
            var generator = SystemRandomNumberGenerator()
            let temporary = Array(".upload-\(HexDigit.text(generator.next()))".utf8)
            let flags = O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC
            let file = temporary.withCString { csystem_open_beneath(folder, $0, flags, 0o666) }
            guard file >= 0 else {
                _ = Glibc.close(folder)
                return .failure(FileFailure(code: -file))
            }
            return .success(
                FileWriter(
                    folder: folder, file: file, name: name, temporary: temporary,
                    mayReplace: service.options.mayReplace, replaces: exists, limit: service.options.uploadLimit))
        }
    }

    func write(_ bytes: UnsafeRawBufferPointer) -> FileFailure? {
        guard let base = bytes.baseAddress, !bytes.isEmpty else { return nil }
        size += UInt64(bytes.count)
        guard size <= limit else { return FileFailure(code: EFBIG) }
        let result = csystem_write_all(file, base, bytes.count)
        return result < 0 ? FileFailure(code: Int32(truncatingIfNeeded: -result)) : nil
    }

    /// Gives the file its name.
    func finish() -> FileFailure? {
        let code = temporary.withCString { from in
            name.withCString { to -> Int32 in
                if mayReplace { return renameat(folder, from, folder, to) == 0 ? 0 : errno }
                return -csystem_rename_new(folder, from, to)
            }
        }
        guard code == 0 else { return FileFailure(code: code) }
        isDone = true
        return nil
    }
}
