import CBLIP
import Synchronization
import Transport
import WebSocketProtocol

/// What a server, or a proxy on the way, asks of a client that it does not know: the challenges of one answer, and the program's answer to them.
public final class Challenge: SlotOwner, @unchecked Sendable {
    public static var handleKind: HandleKind { .challenge }
    public var slot: UInt32 = 0

    enum Answer: Sendable {
        case credentials(HTTPCredentials)
        case header(SecretBytes)
        case cancel
    }

    /// One challenge, in memory that can be lent.
    private struct Entry {
        let scheme: Text
        let token: Text?
        let parameters: [(name: String, value: Text)]
    }

    let list: [HTTPChallenge]
    /// What the trouble is, should the program not answer.
    let trouble: Failure
    public let host: Text
    /// Who asks; nil: the server.
    let proxy: ProxyURL?
    public var isProxy: Bool { proxy != nil }
    public let attempts: Int
    private let entries: [Entry]
    private let connection: Connection
    private let isAnswered = Atomic<Bool>(false)
    /// The handle that the event lends.
    private(set) var handle: OpaquePointer?

    init(
        _ list: [HTTPChallenge], trouble: Failure, host: String, proxy: ProxyURL?, attempts: Int,
        connection: Connection
    ) {
        self.list = list
        self.trouble = trouble
        self.host = Text(host)
        self.proxy = proxy
        self.attempts = attempts
        self.connection = connection
        entries = list.map { challenge in
            Entry(
                scheme: Text(challenge.scheme), token: challenge.token68.map { Text($0) },
                parameters: challenge.parameters.map { ($0.name, Text($0.value)) })
        }
        handle = HandleTable.create(self)
    }

    deinit { HandleTable.freeSlot(slot) }

    // MARK: What may be asked, from any thread

    public var count: Int { entries.count }
    public var connectionHandle: OpaquePointer? { connection.handle }

    public func scheme(_ index: Int) -> Text? { entries.indices.contains(index) ? entries[index].scheme : nil }
    public func token(_ index: Int) -> Text? { entries.indices.contains(index) ? entries[index].token : nil }

    public func parameter(_ index: Int, _ name: String) -> Text? {
        guard entries.indices.contains(index) else { return nil }
        let name = name.lowercased()
        return entries[index].parameters.first { $0.name == name }?.value
    }

    // MARK: Answers, from any thread

    public func answer(user: String, password: UnsafeRawBufferPointer) -> blip_status {
        answer(.password(user: user, SecretBytes(password)))
    }

    public func answer(token: UnsafeRawBufferPointer) -> blip_status {
        guard BearerToken.isValid(token) else { return BLIP_ERROR_ARGUMENT }
        return answer(.token(SecretBytes(token)))
    }

    private func answer(_ credentials: HTTPCredentials) -> blip_status {
        var trial = HTTPAuthenticator(credentials: nil, isPreemptive: false)
        guard trial.answer(credentials, to: list) else { return BLIP_ERROR_UNSUPPORTED }
        return settle(.credentials(credentials))
    }

    public func answer(header: UnsafeRawBufferPointer) -> blip_status {
        guard !header.isEmpty, HTTPHeader.isValidValue(header) else { return BLIP_ERROR_ARGUMENT }
        return settle(.header(SecretBytes(header)))
    }

    public func cancel() -> blip_status { settle(.cancel) }

    private func settle(_ answer: Answer) -> blip_status {
        guard !isAnswered.exchange(true, ordering: .acquiringAndReleasing) else { return BLIP_ERROR_STATE }
        guard connection.state < BLIP_STATE_CLOSING else { return BLIP_ERROR_CLOSED }
        // Posted even from the loop: the end of the connection is never told inside the call that causes it.
        connection.loop.post { [self] in connection.challengeDidEnd(self, answer) }
        return BLIP_OK
    }

    /// Nobody can answer any more.
    public func handleDidEnd() { _ = cancel() }

    /// The event has been seen.
    func eventDidSettle() {
        let lent = handle
        handle = nil
        HandleTable.release(lent, as: Challenge.self)
    }
}
