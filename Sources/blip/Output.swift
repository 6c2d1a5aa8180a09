import Glibc

/// Writes to descriptors, whole or not at all.
enum Output {
    static func print(_ text: String) {
        _ = write(text, to: STDOUT_FILENO)
    }

    static func error(_ text: String) {
        _ = write(text, to: STDERR_FILENO)
    }

    static func write(_ text: String, to descriptor: Int32) -> Bool {
        var text = text
        return text.withUTF8 { write(UnsafeRawBufferPointer($0), to: descriptor) }
    }

    /// Writes all; false leaves the reason in errno.
    static func write(_ bytes: UnsafeRawBufferPointer, to descriptor: Int32) -> Bool {
        var rest = bytes[...]
        while !rest.isEmpty {
            let slice = UnsafeRawBufferPointer(rebasing: rest)
            let count = Glibc.write(descriptor, slice.baseAddress, slice.count)
            if count > 0 {
                rest = rest.dropFirst(count)
            } else if count < 0 && errno == EAGAIN {
                var entry = pollfd(fd: descriptor, events: Int16(POLLOUT), revents: 0)
                _ = poll(&entry, 1, 1000)
            } else if !(count < 0 && errno == EINTR) {
                return false
            }
        }
        return true
    }

    /// The text of the current errno.
    static var reason: String {
        strerror(errno).map { String(cString: $0) } ?? "error \(errno)"
    }
}
