/// Why a connection cannot go on: the peer broke the protocol, or a limit or resource of this side ended.
public struct ProtocolError: Error, Sendable, Equatable {
    /// The sort of mistake, for programs.
    public enum Kind: UInt8, Sendable {
        /// A frame without a valid header, or of the wrong length.
        case frame
        /// A number that is cut off or above 64 bits.
        case varint
        /// Data was lost, changed or reordered.
        case checksum
        /// Compressed data that is none, or a compressor that failed.
        case deflate
        /// A request out of sequence.
        case requestNumber
        /// A response to what was never sent.
        case responseNumber
        /// A limit of this side, or of the protocol.
        case limit
        /// The body of an outgoing message ended in its middle.
        case bodySource
        /// There is none left.
        case memory
    }

    /// The exact mistake; each has a text and a close code.
    enum Reason: UInt8, Sendable {
        case frameEmpty, frameHeader, frameFlags, frameMagic, frameOldMagic, frameLength
        case frameChecksumMissing
        case acknowledgement
        case checksum
        case inflate, deflate
        case requestAhead, requestFinished, requestZero
        case responseAhead
        case frameTooLarge, tooManyUnfinished, inflatedTooLarge
        case numbersExhausted
        case bodySource
        case memory
    }

    let reason: Reason

    init(_ reason: Reason) { self.reason = reason }

    /// The body of an outgoing message ended in its middle.
    public static var bodyFailed: ProtocolError { ProtocolError(.bodySource) }

    /// The sort of mistake.
    public var kind: Kind {
        switch reason {
        case .frameEmpty, .frameFlags, .frameMagic, .frameOldMagic, .frameLength, .frameChecksumMissing: .frame
        case .frameHeader, .acknowledgement: .varint
        case .checksum: .checksum
        case .inflate, .deflate: .deflate
        case .requestAhead, .requestFinished, .requestZero: .requestNumber
        case .responseAhead: .responseNumber
        case .frameTooLarge, .tooManyUnfinished, .inflatedTooLarge, .numbersExhausted: .limit
        case .bodySource: .bodySource
        case .memory: .memory
        }
    }

    /// What happened, for people.
    public var text: StaticString {
        switch reason {
        case .frameEmpty: "The peer sent an empty frame."
        case .frameHeader: "The peer sent a frame whose header ends inside a number, or holds one above 64 bits."
        case .frameFlags: "The peer sent a frame with flags above 8 bits."
        case .frameMagic: "The peer's stream does not hold a BLIP 1.1 frame where one must begin."
        case .frameOldMagic:
            "The peer speaks BLIP 1.0, of May 2008 (its frames begin with 9B34F205); BLIP 1.1 or later is needed."
        case .frameLength: "The peer sent a frame whose length does not fit its header."
        case .frameChecksumMissing: "The peer sent a frame without a checksum."
        case .acknowledgement: "The peer sent an acknowledgement without a valid count."
        case .checksum: "The checksum of a received frame does not match; data was lost, changed or reordered."
        case .inflate: "A received frame does not hold valid compressed data."
        case .deflate: "The compressor of this side failed."
        case .requestAhead: "The peer skipped a request number."
        case .requestFinished: "The peer used the number of a request that it had finished before."
        case .requestZero: "The peer sent a request with number zero."
        case .responseAhead: "The peer answered a request that was never sent."
        case .frameTooLarge: "The peer sent a frame above the limit for incoming frames."
        case .tooManyUnfinished: "The peer began more messages, without finishing them, than the limit allows."
        case .inflatedTooLarge: "A received frame inflates to more than the limit for a message."
        case .numbersExhausted: "All request numbers of the protocol are used up; open a new connection."
        case .bodySource: "The body of a message that was partly sent cannot be completed: its source failed."
        case .memory: "No memory for the state of a connection."
        }
    }

    /// The close code of RFC 6455 §7.4.1 that fits.
    public var webSocketCode: UInt16 {
        switch reason {
        case .frameTooLarge, .tooManyUnfinished, .inflatedTooLarge: 1009
        case .deflate, .numbersExhausted, .bodySource, .memory: 1011
        default: 1002
        }
    }
}
