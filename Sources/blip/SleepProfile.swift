import CBLIP

/// `sleep`: an empty reply after as many milliseconds as the property "ms" says.
enum SleepProfile {
    private static let sleepers = Sleepers()

    static func handle(_ request: OpaquePointer) -> blip_status {
        guard Profiles.wantsReply(request) else { return BLIP_OK }
        guard let milliseconds = Profiles.number("ms", of: request, profile: "sleep", 0...3_600_000) else {
            return BLIP_OK
        }
        let status = blip_message_defer(request)
        guard status >= 0 else { return status }
        if !sleepers.add(request, wakingAt: Clock.now + milliseconds * 1_000_000) {
            Profiles.respond(to: request, code: 503, "too many requests are asleep")
        }
        return BLIP_OK
    }
}
