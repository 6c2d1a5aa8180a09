import Testing

@testable import BLIP

/// Times that blip.h promises and that are too long to be waited for.
@Suite struct DefaultTests {
    @Test("Closing by Bye takes a minute at most")
    func bye() {
        for options in [ConnectionOptions(), ListenerOptions()] as [CommonOptions] {
            #expect(Configuration(options, queue: nil, tls: nil).byeTimeout == 60_000_000_000)
        }
    }
}
