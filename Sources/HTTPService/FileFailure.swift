import Glibc
import WebSocketProtocol

/// Why something cannot be done with a file, as the client is told.
struct FileFailure: Error {
    let code: Int32

    var response: HTTPResponse { ErrorPage.response(status, text) }

    private var status: Int {
        switch code {
        case ENOENT, ENOTDIR, ELOOP, EXDEV, ENAMETOOLONG, EINVAL: 404
        case EACCES, EPERM, EROFS: 403
        case EEXIST, ENOTEMPTY, EISDIR: 409
        case ENOSPC, EDQUOT: 507
        case EFBIG: 413
        case EMFILE, ENFILE, ENOMEM, EAGAIN: 503
        default: 500
        }
    }

    private var text: String {
        switch code {
        case EACCES, EPERM: "The server may not do that."
        case EROFS: "The files cannot be changed."
        case EEXIST: "There is something of that name already."
        case ENOTEMPTY: "The folder is not empty."
        case EISDIR: "That is a folder."
        case ENOSPC, EDQUOT: "The server's disk is full."
        case EFBIG: "The file is too large."
        case EMFILE, ENFILE, ENOMEM, EAGAIN: "The server is short of resources: try again later."
        default: status == 404 ? "There is nothing at this address." : "The server cannot do that."
        }
    }
}
