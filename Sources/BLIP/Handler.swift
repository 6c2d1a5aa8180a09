import BLIPProtocol
import CBLIP

/// A callback of the program with its context. The context is released exactly once, when the last holder lets go:
/// after the last call, or at once if it was never installed.
public final class Handler<Function>: @unchecked Sendable {
    public let function: Function?
    public let context: UnsafeMutableRawPointer?
    public let flags: UInt32
    private let releaseContext: (@convention(c) (UnsafeMutableRawPointer?) -> Void)?

    public init(
        _ function: Function?, _ context: UnsafeMutableRawPointer?,
        _ releaseContext: (@convention(c) (UnsafeMutableRawPointer?) -> Void)?, flags: UInt32 = 0
    ) {
        self.function = function
        self.context = context
        self.releaseContext = releaseContext
        self.flags = flags
    }

    deinit { releaseContext?(context) }
}

public typealias ReleaseFunction = @convention(c) (UnsafeMutableRawPointer?) -> Void
public typealias RequestHandler = Handler<blip_request_fn>
