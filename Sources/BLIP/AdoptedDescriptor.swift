import CSystem
import Synchronization

/// A connected socket that the program has given to a connection, until the connection takes it over.
public final class AdoptedDescriptor: Sendable {
    private let descriptor: Atomic<Int32>

    init(_ descriptor: Int32) {
        self.descriptor = Atomic(descriptor)
    }

    deinit {
        let left = take()
        if left >= 0 { closeDescriptor(left) }
    }

    /// The descriptor, once; then −1.
    func take() -> Int32 { descriptor.exchange(-1, ordering: .acquiringAndReleasing) }

    /// Whether it is a stream socket that is connected.
    static func isConnected(_ descriptor: Int32) -> Bool { descriptor >= 0 && csystem_is_connected(descriptor) }
}
