@testable import BLIPProtocol

extension Engine {
    /// A message whose first frame is suspended, so that it is in no table yet.
    var suspendedFirst: Message? {
        guard let frame = state.pointee.suspended, frame.part.isFirst, let message = frame.message,
            !message.state.pointee.isDiscarded
        else { return nil }
        return message
    }
}
