import BLIPProtocol
import CBLIP
import Transport

/// The deadline of one request.
final class RequestTimer: LoopTimer, @unchecked Sendable {
    /// Cleared when the request completes, which cuts the cycle between the two.
    var request: BLIPMessage?

    init(_ request: BLIPMessage) { self.request = request }

    override func fire() {
        guard let request, let connection = request.connection else { return }
        connection.abandon(
            request,
            Failure(BLIP_ERROR_TIMEOUT, "The request was not answered in time; raise its timeout or look at the peer."))
    }
}
