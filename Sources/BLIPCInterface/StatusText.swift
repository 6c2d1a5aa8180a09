import CBLIP

/// Names and messages of the statuses of blip.h.
struct StatusText {
    let name: StaticString
    let message: StaticString

    static func of(_ status: blip_status) -> StatusText? {
        switch status {
        case BLIP_OK:
            StatusText(name: "BLIP_OK", message: "Success.")
        case BLIP_ERROR_HANDLE:
            StatusText(name: "BLIP_ERROR_HANDLE", message: "The handle is not a live object of the right kind.")
        case BLIP_ERROR_ARGUMENT:
            StatusText(
                name: "BLIP_ERROR_ARGUMENT", message: "An argument is out of its range, or NULL where it may not be.")
        case BLIP_ERROR_TEXT:
            StatusText(name: "BLIP_ERROR_TEXT", message: "A text is not UTF-8 or has an embedded NUL.")
        case BLIP_ERROR_IMMUTABLE:
            StatusText(
                name: "BLIP_ERROR_IMMUTABLE",
                message: "The message was sent or received and cannot be changed or sent again; copy it.")
        case BLIP_ERROR_WOULD_DEADLOCK:
            StatusText(
                name: "BLIP_ERROR_WOULD_DEADLOCK",
                message: "A waiting function was called on a loop thread, in a callback; use its asynchronous form.")
        case BLIP_ERROR_FORKED:
            StatusText(
                name: "BLIP_ERROR_FORKED",
                message: "The handle belongs to the process before fork; make a new one in the child.")
        case BLIP_ERROR_URL:
            StatusText(
                name: "BLIP_ERROR_URL",
                message: "The URL cannot be parsed, or its scheme is unknown.")
        case BLIP_ERROR_NOT_FOUND:
            StatusText(name: "BLIP_ERROR_NOT_FOUND", message: "There is no such thing.")
        case BLIP_ERROR_UNSUPPORTED:
            StatusText(name: "BLIP_ERROR_UNSUPPORTED", message: "Not supported here.")
        case BLIP_ERROR_STATE:
            StatusText(name: "BLIP_ERROR_STATE", message: "The object is not in the state that this needs.")
        case BLIP_ERROR_CLOSED:
            StatusText(name: "BLIP_ERROR_CLOSED", message: "The connection is closing or closed by this side.")
        case BLIP_ERROR_CANCELLED:
            StatusText(name: "BLIP_ERROR_CANCELLED", message: "The request was cancelled.")
        case BLIP_ERROR_TIMEOUT:
            StatusText(name: "BLIP_ERROR_TIMEOUT", message: "The time was over first.")
        case BLIP_ERROR_NO_REPLY:
            StatusText(name: "BLIP_ERROR_NO_REPLY", message: "The request wants no reply.")
        case BLIP_ERROR_ALREADY_RESPONDED:
            StatusText(name: "BLIP_ERROR_ALREADY_RESPONDED", message: "The request was responded to already.")
        case BLIP_ERROR_NOT_COMPLETE:
            StatusText(name: "BLIP_ERROR_NOT_COMPLETE", message: "The body has not arrived as a whole.")
        case BLIP_ERROR_STOPPED:
            StatusText(name: "BLIP_ERROR_STOPPED", message: "The runtime was stopped.")
        case BLIP_ERROR_FILTERED:
            StatusText(name: "BLIP_ERROR_FILTERED", message: "An interceptor dropped the message.")
        case BLIP_ERROR_PROTOCOL:
            StatusText(name: "BLIP_ERROR_PROTOCOL", message: "The peer broke the BLIP protocol.")
        case BLIP_ERROR_WEBSOCKET:
            StatusText(name: "BLIP_ERROR_WEBSOCKET", message: "The peer broke the WebSocket protocol.")
        case BLIP_ERROR_SUBPROTOCOL:
            StatusText(name: "BLIP_ERROR_SUBPROTOCOL", message: "No subprotocol was agreed on.")
        case BLIP_ERROR_PEER_CLOSED:
            StatusText(name: "BLIP_ERROR_PEER_CLOSED", message: "The peer closed the connection.")
        case BLIP_ERROR_PROPERTIES:
            StatusText(name: "BLIP_ERROR_PROPERTIES", message: "The properties of the message are malformed.")
        case BLIP_ERROR_BODY:
            StatusText(
                name: "BLIP_ERROR_BODY",
                message: "The body of the message cannot be decompressed, or its source failed.")
        case BLIP_ERROR_NETWORK:
            StatusText(name: "BLIP_ERROR_NETWORK", message: "The network failed.")
        case BLIP_ERROR_RESOLVE:
            StatusText(name: "BLIP_ERROR_RESOLVE", message: "The host name cannot be looked up.")
        case BLIP_ERROR_REFUSED:
            StatusText(name: "BLIP_ERROR_REFUSED", message: "The connection was refused; nothing listens there.")
        case BLIP_ERROR_UNREACHABLE:
            StatusText(name: "BLIP_ERROR_UNREACHABLE", message: "The host or network cannot be reached.")
        case BLIP_ERROR_CONNECTION_LOST:
            StatusText(
                name: "BLIP_ERROR_CONNECTION_LOST", message: "The connection was reset, or ended without a close.")
        case BLIP_ERROR_ADDRESS_IN_USE:
            StatusText(name: "BLIP_ERROR_ADDRESS_IN_USE", message: "The address or port is in use.")
        case BLIP_ERROR_PERMISSION:
            StatusText(name: "BLIP_ERROR_PERMISSION", message: "The operating system did not permit it.")
        case BLIP_ERROR_PEER_SILENT:
            StatusText(name: "BLIP_ERROR_PEER_SILENT", message: "The peer is silent and does not answer pings.")
        case BLIP_ERROR_FILE:
            StatusText(name: "BLIP_ERROR_FILE", message: "A file, or the path of a Unix socket, cannot be used.")
        case BLIP_ERROR_PROXY:
            StatusText(
                name: "BLIP_ERROR_PROXY", message: "The proxy refuses, does not reach the server, or is none.")
        case BLIP_ERROR_TLS:
            StatusText(name: "BLIP_ERROR_TLS", message: "TLS failed.")
        case BLIP_ERROR_CERTIFICATE:
            StatusText(
                name: "BLIP_ERROR_CERTIFICATE",
                message: "The peer's certificate is not trusted, or is for another name.")
        case BLIP_ERROR_TLS_SETUP:
            StatusText(
                name: "BLIP_ERROR_TLS_SETUP", message: "A certificate, key or CA file of this side cannot be used.")
        case BLIP_ERROR_HTTP:
            StatusText(name: "BLIP_ERROR_HTTP", message: "The peer sent malformed or unexpected HTTP.")
        case BLIP_ERROR_HTTP_STATUS:
            StatusText(
                name: "BLIP_ERROR_HTTP_STATUS", message: "The server answered the upgrade with another HTTP status.")
        case BLIP_ERROR_LIMIT:
            StatusText(name: "BLIP_ERROR_LIMIT", message: "A size limit was exceeded.")
        case BLIP_ERROR_RESOURCES:
            StatusText(name: "BLIP_ERROR_RESOURCES", message: "Descriptors, threads, handles or memory ran out.")
        case BLIP_ERROR_INTERNAL:
            StatusText(name: "BLIP_ERROR_INTERNAL", message: "An internal error; please report it.")
        case BLIP_DATA_END:
            StatusText(name: "BLIP_DATA_END", message: "The last of the data.")
        case BLIP_AGAIN:
            StatusText(name: "BLIP_AGAIN", message: "Nothing now; try again later.")
        default: nil
        }
    }
}
