/// What inflating a frame has led to.
enum InflationOutcome {
    /// All of it is out, and right.
    case done
    /// There is more than is done at once.
    case unfinished
    case failed(ProtocolError)
}
