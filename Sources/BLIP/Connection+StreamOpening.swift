import BLIPProtocol
import CBLIP
import Transport

/// Connections without a handshake: BLIP 1 on the byte stream. Who speaks first is open, and nothing but the first bytes
/// of a client tells that it is no HTTP.
extension Connection {
    /// What `blip_connection_subprotocol` calls BLIP 1, which has no subprotocol.
    static let streamProtocol = "BLIP_1"

    /// The first byte of a BLIP 1 frame; no HTTP request begins with it.
    static let streamMark: UInt8 = 0x9B

    func openStream() {
        upgrade = nil
        version = .v1
        open(subprotocol: Self.streamProtocol, version: .v1)
    }

    /// A client's first bytes are none of HTTP. How many were consumed: none, or all if it is turned away.
    func receiveFirstFrame(_ bytes: UnsafeMutableRawBufferPointer) -> Int {
        guard bytes.count >= 4 else { return 0 }
        if case .failed(let error) = Engine.v1FrameLength(UnsafeRawBufferPointer(bytes)) {
            finish(Failure(BLIP_ERROR_PROTOCOL, "\(error.text)"))
            return bytes.count
        }
        guard listener?.speaksBLIP1 == true else {
            finish(
                Failure(
                    BLIP_ERROR_SUBPROTOCOL,
                    "The client speaks BLIP 1, for which the listener was not switched on "
                        + "(blip_listener_options_set_blip1)."))
            return bytes.count
        }
        acceptStream()
        return 0
    }

    /// Takes an accepted client for one of BLIP 1.
    func acceptStream() {
        guard let listener else { return finish(Failure(BLIP_ERROR_CLOSED, "The listener was stopped.")) }
        guard !listener.access.hasUsers else {
            return finish(
                Failure(BLIP_ERROR_HTTP, "The listener wants to know its users, which BLIP 1 has no way to tell."))
        }
        upgrade = nil
        version = .v1
        phase = .waitingForAccept
        tell(BLIP_OBSERVE_WILL_AUTHENTICATE)
        if let handler = listener.acceptHandler {
            present(nil, handler, listener)
        } else {
            continueAfterAccept()
        }
    }

    /// Whether a client that has sent nothing speaks BLIP 1: those of HTTP speak first.
    var isSilentStream: Bool {
        phase == .upgrading && isIncoming && stream?.bytesReceived == 0 && listener?.speaksBLIP1 == true
    }
}
