import Transport

/// An address of a connection in the forms that a program may ask for, made when it does.
final class StreamAddress: Sendable {
    let text: Text
    /// A `struct sockaddr` of the system.
    let system: Text

    init(_ address: SocketAddress) {
        text = Text(address.description)
        system = Text(address.systemBytes)
    }
}
