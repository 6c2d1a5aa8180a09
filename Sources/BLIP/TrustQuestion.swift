import CBLIP
import Synchronization
import Transport

/// A `blip_trust`: a peer's certificate that the program is to judge, while the handshake stands still.
///
/// It is answered once; letting go of it unanswered is a no.
public final class TrustQuestion: SlotOwner, Sendable {
    public static let handleKind = HandleKind.trust
    private let place = Atomic<UInt32>(0)
    public var slot: UInt32 {
        get { place.load(ordering: .relaxed) }
        set { place.store(newValue, ordering: .relaxed) }
    }

    let connection: Connection
    private let chain: [Text]
    public let host: Text?
    public let code: Int32
    public let text: Text
    private let isAnswered = Atomic<Bool>(false)

    init(_ connection: Connection, _ evidence: TrustEvidence) {
        self.connection = connection
        chain = evidence.chain.map { Text($0) }
        host = evidence.host.map { Text($0) }
        code = evidence.code
        text = Text(evidence.text)
    }

    deinit { HandleTable.freeSlot(slot) }

    /// The certificate at a place, the peer's own at 0; nil behind the last.
    public func certificate(_ index: Int) -> Text? {
        index >= 0 && index < chain.count ? chain[index] : nil
    }

    /// Answers, from any thread; false: it was answered before.
    public func answer(_ isTrusted: Bool) -> Bool {
        guard !isAnswered.exchange(true, ordering: .acquiringAndReleasing) else { return false }
        connection.perform { [connection] in connection.stream?.answerTrust(isTrusted) }
        return true
    }

    public func handleDidEnd() { _ = answer(false) }
}
