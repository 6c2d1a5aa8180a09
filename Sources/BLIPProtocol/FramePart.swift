/// Which part of which message a received frame is.
struct FramePart {
    let number: UInt64
    /// 0 to 2.
    let type: UInt8
    let isLast: Bool
    let isFirst: Bool
    /// Bytes that count for flow control.
    let wireSize: Int
}
