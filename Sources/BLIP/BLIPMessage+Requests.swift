import BLIPProtocol
import CBLIP
import Synchronization
import Transport

extension BLIPMessage {
    // MARK: A request of ours

    public func setTimeout(_ milliseconds: Int64) -> blip_status {
        guard !isFrozen else { return BLIP_ERROR_IMMUTABLE }
        guard kind == .request, milliseconds >= -1 else { return BLIP_ERROR_ARGUMENT }
        extras.timeout = milliseconds
        return BLIP_OK
    }

    /// Ends the request now; any thread. What is already complete stays so.
    public func cancel() -> blip_status {
        guard kind == .request, !isIncoming else { return BLIP_ERROR_ARGUMENT }
        if let carrier = existingExtras?.carrier, isFrozen {
            isCancelled.store(true, ordering: .releasing)
            carrier.postAbandon(self, Failure(BLIP_ERROR_CANCELLED, "The request was cancelled."))
            return BLIP_OK
        }
        guard let connection, isFrozen else { return BLIP_ERROR_STATE }
        isCancelled.store(true, ordering: .releasing)
        // Posted even from the loop: a completion never runs inside the call that causes it.
        connection.loop.post { [self] in
            connection.abandon(self, Failure(BLIP_ERROR_CANCELLED, "The request was cancelled."))
        }
        return BLIP_OK
    }

    public func setUserData(_ data: Handler<Never>) {
        // The old data is released behind the lock: that may run code of the program.
        let old = extras.shared.withLock { shared -> Handler<Never>? in
            defer { shared.userData = data }
            return shared.userData
        }
        _ = consume old
    }

    public var userData: UnsafeMutableRawPointer? {
        existingExtras?.shared.withLock { $0.userData?.context }
    }

    // MARK: A request of the peer's

    @inline(__always)
    public func respond(with response: BLIPMessage) -> blip_status {
        guard isIncoming, response.kind != .request, !response.isIncoming else { return BLIP_ERROR_ARGUMENT }
        return withConnection { $0.respond(to: self, with: response) } ?? BLIP_ERROR_ARGUMENT
    }

    /// Makes a response, lets `fill` complete it, and sends it.
    @inline(__always)
    private func respond(_ fill: (BLIPMessage) -> blip_status) -> blip_status {
        guard isIncoming, kind == .request else { return BLIP_ERROR_ARGUMENT }
        return withConnection { connection in
            let response = connection.makeResponse(to: self)
            let status = fill(response)
            return status == BLIP_OK ? connection.respond(to: self, with: response) : status
        } ?? BLIP_ERROR_ARGUMENT
    }

    @inline(__always)
    public func respondData(_ body: blip_slice, _ type: blip_slice) -> blip_status {
        type.text { type in
            respond { response in
                let status = type.isEmpty ? BLIP_OK : response.setContentType(type)
                return status == BLIP_OK ? response.setBody(body) : status
            }
        }
    }

    public func respondText(_ text: blip_slice) -> blip_status { respond { $0.setText(text) } }
    public func respondJSON(_ json: blip_slice) -> blip_status { respond { $0.setJSON(json) } }
    public func respondEmpty() -> blip_status { respond { _ in BLIP_OK } }

    public func respondError(_ domain: String, _ code: Int32, _ text: String) -> blip_status {
        guard code != 0, let connection, isIncoming, kind == .request else { return BLIP_ERROR_ARGUMENT }
        return connection.respond(to: self, domain: domain.isEmpty ? "BLIP" : domain, code: code, text: text)
    }

    /// Makes a response an error response; its other properties are details.
    public func setError(
        _ domain: UnsafeRawBufferPointer, _ code: Int32, _ text: UnsafeRawBufferPointer
    ) -> blip_status {
        guard !isFrozen else { return BLIP_ERROR_IMMUTABLE }
        guard kind != .request, code != 0 else { return BLIP_ERROR_ARGUMENT }
        var number = String(code)
        var status = set(
            ("Error-Domain" as StaticString).bytes, domain.isEmpty ? ("BLIP" as StaticString).bytes : domain)
        if status == BLIP_OK {
            status = number.withUTF8 { set(("Error-Code" as StaticString).bytes, UnsafeRawBufferPointer($0)) }
        }
        if status == BLIP_OK { status = setBody(blip_slice(text)) }
        if status == BLIP_OK { kind = .error }
        return status
    }

    /// The request will be answered later.
    public func deferReply() -> blip_status {
        guard isIncoming, kind == .request else { return BLIP_ERROR_ARGUMENT }
        guard wantsReply else { return BLIP_ERROR_NO_REPLY }
        let (done, seen) = reply.compareExchange(
            expected: ReplyState.open, desired: ReplyState.deferred, ordering: .acquiringAndReleasing)
        return done || seen == ReplyState.deferred ? BLIP_OK : BLIP_ERROR_ALREADY_RESPONDED
    }

    public var isResponded: Bool { reply.load(ordering: .acquiring) == ReplyState.replied }

    // MARK: A response

    /// Of an error response: what it says. A missing domain means "BLIP", a missing code 599.
    public var errorHandle: OpaquePointer? {
        guard kind == .error else { return nil }
        return extras.shared.withLock { shared in
            if let error = shared.error { return error.handle }
            let domain = property(("Error-Domain" as StaticString).bytes)
            let code = property(("Error-Code" as StaticString).bytes).flatMap {
                Int64(String(decoding: $0, as: UTF8.self))
            }
            let text = isIncoming ? incomingBody : body.bytes
            let error = OwnedError(
                ErrorRecord(
                    status: BLIP_OK,
                    domain: domain.map { $0.isEmpty ? Text("BLIP") : Text($0) } ?? Text("BLIP"),
                    code: code.map { $0 == 0 ? 599 : $0 } ?? 599, message: Text(text)))
            shared.error = error
            return error.handle
        }
    }

    // MARK: Both

    /// One line about the message, or with its properties a line for each of them.
    public func describe(properties: Bool) -> Text {
        let name =
            switch kind {
            case .request: "request"
            case .response: "response"
            case .error: "error response"
            }
        var line = "\(name) #\(currentNumber)"
        let profile = value(of: "Profile")
        if profile.size > 0, let bytes = profile.bytes { line += " “\(String(decoding: bytes, as: UTF8.self))”" }
        if flags.contains(.urgent) { line += ", urgent" }
        if flags.contains(.compressed) { line += ", compressed" }
        if flags.contains(.noReply) { line += ", no reply" }
        line += ", \(bodySize) bytes"
        if properties {
            for index in 0..<propertyCount {
                guard let (key, value) = property(at: index) else { break }
                line += "\n    \(String(decoding: key, as: UTF8.self)): \(String(decoding: value, as: UTF8.self))"
            }
        }
        let text = Text(line)
        // Earlier descriptions stay valid as long as the message.
        extras.shared.withLock { $0.descriptions.append(text) }
        return text
    }

    /// A new request with the same properties, flags and body, to be sent elsewhere or again.
    public func makeCopy(_ result: inout BLIPMessage?) -> blip_status {
        guard kind == .request || isIncoming else { return BLIP_ERROR_ARGUMENT }
        guard sources.isEmpty else { return BLIP_ERROR_UNSUPPORTED }
        var bytes = blip_slice.empty
        let status = wholeBody(&bytes)
        guard status == BLIP_OK else { return status }
        let copy = LoopContext.newMessage()
        copy.flags = MessageFlags(rawValue: UInt8(truncatingIfNeeded: publicFlags))
        guard let encoded = encoded.bytes, copy.properties.append(encoded) else { return BLIP_ERROR_RESOURCES }
        result = copy
        return copy.setBody(bytes)
    }
}
