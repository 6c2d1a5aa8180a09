import CBLIP

/// `error`: an error reply as the properties "domain", "code" and "text" say.
enum ErrorProfile {
    static func handle(_ request: OpaquePointer) -> blip_status {
        guard Profiles.wantsReply(request) else { return BLIP_OK }
        let domain = Profiles.property("domain", of: request) ?? "BLIP"
        let text = Profiles.property("text", of: request) ?? "the error that was asked for"
        var code: Int32 = 599
        if let given = Profiles.property("code", of: request) {
            guard let number = Int32(given) else {
                Profiles.respond(to: request, code: 400, "error wants a property \"code\" that is a whole number")
                return BLIP_OK
            }
            code = number
        }
        return domain.withSlice { domain in
            text.withSlice { blip_message_respond_error(request, domain, code, $0) }
        }
    }
}
