/// The ways in which a peer can break RFC 6455 or our limit, with the close code and text of each.
enum WebSocketViolation: UInt8 {
    case reservedBits
    case reservedOpcode
    case unmasked
    case masked
    case controlFragmented
    case controlTooLong
    case lengthNotMinimal
    case lengthNegative
    case continuationWithoutStart
    case startInsideMessage
    case messageTooBig
    case noMemory
    case textEncoding
    case closePayload
    case closeCode
    case closeReason

    /// The code to close with (RFC 6455 §7.4.1).
    var code: UInt16 {
        switch self {
        case .messageTooBig, .noMemory: 1009
        case .textEncoding, .closeReason: 1007
        default: 1002
        }
    }

    /// What the peer did.
    var text: StaticString {
        switch self {
        case .reservedBits: "WebSocket frame with a reserved bit set, but no extension was agreed upon"
        case .reservedOpcode: "WebSocket frame with a reserved opcode"
        case .unmasked: "WebSocket frame of a client that is not masked"
        case .masked: "WebSocket frame of a server that is masked"
        case .controlFragmented: "WebSocket control frame in fragments"
        case .controlTooLong: "WebSocket control frame with more than 125 bytes"
        case .lengthNotMinimal: "WebSocket frame whose length is not written in the fewest bytes"
        case .lengthNegative: "WebSocket frame whose 64-bit length has its top bit set"
        case .continuationWithoutStart: "WebSocket continuation frame without a message under way"
        case .startInsideMessage: "WebSocket message that starts before the one under way is finished"
        case .messageTooBig: "WebSocket message over the size limit of this side"
        case .noMemory: "WebSocket message in fragments for which there is no memory"
        case .textEncoding: "WebSocket text message that is not UTF-8"
        case .closePayload: "WebSocket close frame with a payload of one byte"
        case .closeCode: "WebSocket close frame with a code that may not be sent"
        case .closeReason: "WebSocket close frame whose reason is not UTF-8"
        }
    }
}
