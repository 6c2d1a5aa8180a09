import CBLIP
import Glibc

/// Files that a person names.
enum File {
    static func checkReadable(_ path: String, for option: String) throws(Failure) {
        guard access(path, R_OK) == 0 else {
            throw .usage("cannot read \(Terminal.quote(path)) of \(option): \(Output.reason)")
        }
    }

    /// The files that people gave for TLS are of no use to it.
    static func notCertificates(_ paths: [String?]) -> Failure {
        let names = paths.compactMap { $0 }.map { Terminal.quote($0) }.joined(separator: ", ")
        return .usage(
            "cannot use \(names): not a certificate and its key in PEM form, or they do not belong together",
            status: BLIP_ERROR_TLS_SETUP)
    }

    /// Opens for reading: a descriptor, and the size if it is a regular file.
    static func openForReading(_ path: String) throws(Failure) -> (descriptor: Int32, size: UInt64?) {
        let descriptor = open(path, O_RDONLY | O_CLOEXEC)
        guard descriptor >= 0 else {
            throw .usage("cannot read \(Terminal.quote(path)): \(Output.reason)")
        }
        var details = stat()
        guard fstat(descriptor, &details) == 0, details.st_mode & S_IFMT != S_IFDIR else {
            close(descriptor)
            throw .usage("cannot read \(Terminal.quote(path)): it is a directory")
        }
        let isRegular = details.st_mode & S_IFMT == S_IFREG
        return (descriptor, isRegular ? UInt64(max(0, details.st_size)) : nil)
    }

    /// Whether a file can be written or made, without touching it.
    static func checkWritable(_ path: String) throws(Failure) {
        var details = stat()
        let folder: String
        if stat(path, &details) == 0 {
            if details.st_mode & S_IFMT == S_IFDIR {
                throw .usage("cannot write \(Terminal.quote(path)): it is a directory")
            }
            folder = path
        } else if errno == ENOENT {
            folder = path.lastIndex(of: "/").map { String(path[...$0]) } ?? "."
        } else {
            throw .usage("cannot write \(Terminal.quote(path)): \(Output.reason)")
        }
        guard access(folder, W_OK) == 0 else {
            throw .usage("cannot write \(Terminal.quote(path)): \(Output.reason)")
        }
    }

    /// Opens for writing and leaves what is there until `empty` is called, so that a failed request destroys nothing.
    static func openForWriting(_ path: String) throws(Failure) -> Int32 {
        let descriptor = open(path, O_WRONLY | O_CREAT | O_CLOEXEC, 0o666)
        guard descriptor >= 0 else {
            throw .usage("cannot write \(Terminal.quote(path)): \(Output.reason)")
        }
        return descriptor
    }

    static func empty(_ descriptor: Int32) {
        _ = ftruncate(descriptor, 0)
    }
}
