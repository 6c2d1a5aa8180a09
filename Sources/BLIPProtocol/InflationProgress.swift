/// How far the inflation of a frame of version 3 has come.
struct InflationProgress {
    /// Of all content so far.
    var checksum: UInt32
    /// What it has to be at the end of the frame.
    let expected: UInt32
    /// Bytes that went nowhere.
    var dropped = 0
}
