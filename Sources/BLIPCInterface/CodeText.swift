import CBLIP

/// What the codes of the domain BLIP mean.
enum CodeText {
    static func of(_ code: Int32) -> StaticString {
        switch code {
        case BLIP_CODE_BAD_DATA: "The data cannot be read."
        case BLIP_CODE_BAD_FRAME: "A frame breaks the protocol."
        case BLIP_CODE_DISCONNECTED: "The connection ended before the response."
        case BLIP_CODE_PEER_NOT_ALLOWED: "The peer is not allowed to connect."
        case BLIP_CODE_MISC: "Something went wrong."
        case BLIP_CODE_BAD_REQUEST: "The request makes no sense."
        case BLIP_CODE_FORBIDDEN: "The peer may not do this."
        case BLIP_CODE_NOT_FOUND: "Nobody handles the profile, or there is no such thing."
        case BLIP_CODE_BAD_RANGE: "There is no such range."
        case BLIP_CODE_HANDLER_FAILED: "The handler of the request failed."
        case BLIP_CODE_UNSPECIFIED: "The error response gives no code."
        default: "Not a code of BLIP itself; applications may use it."
        }
    }
}
