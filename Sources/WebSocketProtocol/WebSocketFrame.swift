/// Writes WebSocket frames (RFC 6455 §5.2).
///
/// A client gives a fresh, unpredictable `maskKey` for each frame (see `MaskKeyGenerator`), a server nil. A key is the
/// four bytes as they lie in memory.
public enum WebSocketFrame {
    /// The most bytes that a header takes.
    public static let maximumHeader = 14
    /// The most bytes that a whole control frame takes.
    public static let maximumControlFrame = 131
    /// The most payload bytes of a control frame (RFC 6455 §5.5).
    public static let maximumControlPayload = 125

    /// The bytes that the header of a frame with `payload` bytes takes: 2, 4 or 10, and 4 more if masked.
    @inline(__always)
    public static func headerSize(payload: Int, masked: Bool) -> Int {
        (payload < 126 ? 2 : payload <= 0xFFFF ? 4 : 10) &+ (masked ? 4 : 0)
    }

    /// Writes a header of the minimal length and returns its size. The payload is not touched: mask it with `mask`.
    /// - Parameters:
    ///   - opcode: of the frame.
    ///   - final: no further fragment of the message follows.
    ///   - payload: bytes that follow the header; a negative number counts as 0.
    ///   - maskKey: the key that the payload is masked with, or nil.
    ///   - target: room for `headerSize(payload:masked:)` bytes.
    @inline(__always)
    public static func writeHeader(
        opcode: WebSocketOpcode, final: Bool, payload: Int, maskKey: UInt32?, to target: UnsafeMutableRawPointer
    ) -> Int {
        let maskBit: UInt8 = maskKey == nil ? 0 : 0x80
        target.storeBytes(of: opcode.rawValue | (final ? 0x80 : 0), as: UInt8.self)
        var size = 2
        if payload < 126 {
            let length = UInt8(truncatingIfNeeded: max(0, payload))
            target.storeBytes(of: maskBit | length, toByteOffset: 1, as: UInt8.self)
        } else if payload <= 0xFFFF {
            target.storeBytes(of: maskBit | 126, toByteOffset: 1, as: UInt8.self)
            target.storeBytes(
                of: UInt16(truncatingIfNeeded: payload).bigEndian, toByteOffset: 2, as: UInt16.self)
            size = 4
        } else {
            target.storeBytes(of: maskBit | 127, toByteOffset: 1, as: UInt8.self)
            target.storeBytes(
                of: UInt64(truncatingIfNeeded: payload).bigEndian, toByteOffset: 2, as: UInt64.self)
            size = 10
        }
        if let maskKey {
            target.storeBytes(of: maskKey, toByteOffset: size, as: UInt32.self)
            size &+= 4
        }
        return size
    }

    /// Masks or unmasks in place: the two are the same (RFC 6455 §5.3).
    /// - Parameters:
    ///   - bytes: at any alignment.
    ///   - key: as its four bytes lie in memory.
    ///   - offset: how many bytes of the frame's payload lie before `bytes`, for a payload that is masked in pieces.
    @inline(__always)
    public static func mask(_ bytes: UnsafeMutableRawBufferPointer, key: UInt32, offset: Int = 0) {
        guard let base = bytes.baseAddress else { return }
        let turn = UInt32(truncatingIfNeeded: (offset & 3) &* 8)
        let value = key.littleEndian
        let turned = (value &>> turn) | (value &<< (32 &- turn))
        mask(base, count: bytes.count, key: (turn == 0 ? value : turned).littleEndian)
    }

    /// The loop of `mask`: 64 bytes a step, then 8, then the last few.
    @inline(__always)
    static func mask(_ base: UnsafeMutableRawPointer, count: Int, key: UInt32) {
        let word = UInt64(key) | UInt64(key) << 32
        let block = SIMD8<UInt64>(repeating: word)
        var index = 0
        while count &- index >= 64 {
            let masked = base.loadUnaligned(fromByteOffset: index, as: SIMD8<UInt64>.self) ^ block
            base.storeBytes(of: masked, toByteOffset: index, as: SIMD8<UInt64>.self)
            index &+= 64
        }
        while count &- index >= 8 {
            let masked = base.loadUnaligned(fromByteOffset: index, as: UInt64.self) ^ word
            base.storeBytes(of: masked, toByteOffset: index, as: UInt64.self)
            index &+= 8
        }
        if count & 4 != 0 {
            let masked = base.loadUnaligned(fromByteOffset: index, as: UInt32.self) ^ key
            base.storeBytes(of: masked, toByteOffset: index, as: UInt32.self)
            index &+= 4
        }
        var rest = key.littleEndian
        while index < count {
            let masked = base.load(fromByteOffset: index, as: UInt8.self) ^ UInt8(truncatingIfNeeded: rest)
            base.storeBytes(of: masked, toByteOffset: index, as: UInt8.self)
            rest &>>= 8
            index &+= 1
        }
    }

    /// Writes a whole ping or pong and returns its size. What is beyond 125 bytes of the payload is left out.
    /// - Parameter target: room for `maximumControlFrame` bytes.
    public static func writeControl(
        _ opcode: WebSocketOpcode, payload: UnsafeRawBufferPointer, maskKey: UInt32?,
        to target: UnsafeMutableRawPointer
    ) -> Int {
        let count = min(payload.count, maximumControlPayload)
        let header = writeHeader(opcode: opcode, final: true, payload: count, maskKey: maskKey, to: target)
        let copy = UnsafeMutableRawBufferPointer(start: target + header, count: count)
        copy.copyMemory(from: UnsafeRawBufferPointer(start: payload.baseAddress, count: count))
        if let maskKey { mask(copy, key: maskKey) }
        return header + count
    }

    /// Writes a whole close frame and returns its size (RFC 6455 §5.5.1).
    /// - Parameters:
    ///   - code: nil, or one that may not be sent (see `isValidCloseCode`): a frame without code and reason.
    ///   - reason: UTF-8; what is beyond 123 bytes is left out, whole characters at a time.
    ///   - maskKey: the key, or nil.
    ///   - target: room for `maximumControlFrame` bytes.
    public static func writeClose(
        code: UInt16?, reason: UnsafeRawBufferPointer, maskKey: UInt32?, to target: UnsafeMutableRawPointer
    ) -> Int {
        guard let code, isValidCloseCode(code) else {
            return writeControl(
                .close, payload: UnsafeRawBufferPointer(start: nil, count: 0), maskKey: maskKey, to: target)
        }
        var count = min(reason.count, maximumControlPayload - 2)
        if count < reason.count {
            while count > 0, reason[count] & 0xC0 == 0x80 { count -= 1 }
        }
        let header = writeHeader(opcode: .close, final: true, payload: count + 2, maskKey: maskKey, to: target)
        let payload = UnsafeMutableRawBufferPointer(start: target + header, count: count + 2)
        payload.storeBytes(of: code.bigEndian, as: UInt16.self)
        UnsafeMutableRawBufferPointer(start: target + header + 2, count: count)
            .copyMemory(from: UnsafeRawBufferPointer(start: reason.baseAddress, count: count))
        if let maskKey { mask(payload, key: maskKey) }
        return header + count + 2
    }

    /// Whether a close frame may carry this code: those of RFC 6455 §7.4.1 that are meant for the wire, the ones
    /// registered since (1012 to 1014), and 3000 to 4999 for libraries and programs.
    public static func isValidCloseCode(_ code: UInt16) -> Bool {
        switch code {
        case 1000...1003, 1007...1014, 3000...4999: true
        default: false
        }
    }
}
