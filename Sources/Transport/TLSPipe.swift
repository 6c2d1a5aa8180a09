import COpenSSL
import Glibc

/// The two windows of memory through which a TLS object sees its socket.
///
/// Overview: the stream receives and sends encrypted bytes itself, many records in one system call; OpenSSL gets them
/// from, and puts them into, these windows by a BIO of our own. An empty input window reads as "try again", as does a
/// full output window.
struct TLSPipe {
    var input: UnsafeRawPointer?
    var inputCount = 0
    var output: UnsafeMutableRawPointer?
    var outputCount = 0
    var outputCapacity = 0

    /// The BIO's methods; they touch nothing but the pipe that is the BIO's data.
    nonisolated(unsafe) static let method: OpaquePointer? = {
        guard let method = BIO_meth_new(BIO_get_new_index() | BIO_TYPE_SOURCE_SINK, "libblip stream") else {
            return nil
        }
        BIO_meth_set_create(method) { bio in
            BIO_set_init(bio, 1)
            return 1
        }
        BIO_meth_set_read(method) { bio, target, count in
            guard let target, count > 0, let pipe = TLSPipe.of(bio) else { return 0 }
            BIO_clear_flags(bio, BIO_FLAGS_READ | BIO_FLAGS_WRITE | BIO_FLAGS_SHOULD_RETRY)
            let size = min(Int(count), pipe.pointee.inputCount)
            guard size > 0, let source = pipe.pointee.input else {
                BIO_set_flags(bio, BIO_FLAGS_READ | BIO_FLAGS_SHOULD_RETRY)
                return -1
            }
            memcpy(target, source, size)
            pipe.pointee.input = source + size
            pipe.pointee.inputCount -= size
            return Int32(truncatingIfNeeded: size)
        }
        BIO_meth_set_write(method) { bio, source, count in
            guard let source, count > 0, let pipe = TLSPipe.of(bio) else { return 0 }
            BIO_clear_flags(bio, BIO_FLAGS_READ | BIO_FLAGS_WRITE | BIO_FLAGS_SHOULD_RETRY)
            let size = min(Int(count), pipe.pointee.outputCapacity - pipe.pointee.outputCount)
            guard size > 0, let target = pipe.pointee.output else {
                BIO_set_flags(bio, BIO_FLAGS_WRITE | BIO_FLAGS_SHOULD_RETRY)
                return -1
            }
            memcpy(target + pipe.pointee.outputCount, source, size)
            pipe.pointee.outputCount += size
            return Int32(truncatingIfNeeded: size)
        }
        BIO_meth_set_ctrl(method) { _, command, _, _ in
            command == BIO_CTRL_FLUSH ? 1 : 0
        }
        return method
    }()

    private static func of(_ bio: OpaquePointer?) -> UnsafeMutablePointer<TLSPipe>? {
        BIO_get_data(bio)?.assumingMemoryBound(to: TLSPipe.self)
    }
}
