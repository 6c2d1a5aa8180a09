import BLIPProtocol
import CBLIP
import Transport

/// The deadline of one request.
final class RequestTimer: LoopTimer, @unchecked Sendable {
    /// Cleared when the request completes, which cuts the cycle between the two.
    var request: BLIPMessage?

    init(_ request: BLIPMessage) { self.request = request }

    override func fire() {
        guard let request else { return }
        // It fires once: whatever follows, the two must not hold each other.
        self.request = nil
        request.existingExtras?.timer = nil
        let failure = Failure(
            BLIP_ERROR_TIMEOUT, "The request was not answered in time; raise its timeout or look at the peer.")
        if let connection = request.connection {
            connection.abandon(request, failure)
        } else {
            request.existingExtras?.carrier?.abandon(request, failure)
        }
    }
}
