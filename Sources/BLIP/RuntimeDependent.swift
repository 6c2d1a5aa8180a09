/// Something that has to end when its runtime stops, although no connection may tell it.
protocol RuntimeDependent: AnyObject, Sendable {
    /// Any thread.
    func runtimeWillStop()
}
