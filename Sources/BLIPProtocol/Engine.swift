/// The BLIP engine of one connection: frames in, events out; messages in, frames out.
public final class Engine {
    public init(
        version: ProtocolVersion, limits: Limits, compressionLevel: Int32, makeMessage: @escaping () -> Message
    ) {
    }
    public func receive(_ frame: UnsafeMutableRawBufferPointer) -> Event { .none }
    public func send(_ message: Message) {}
    public func consume(_ message: Message, _ count: Int) {}
    public func resume(_ message: Message) {}
    public func withdraw(_ message: Message) -> Bool { false }
    public func abandon(_ request: Message) {}
    public var hasOutput: Bool { false }
    public func nextFrame(into buffer: UnsafeMutableRawBufferPointer) -> OutgoingFrame { OutgoingFrame(count: 0) }
    public func takeAll() -> (requests: [Message], outgoing: [Message], incoming: [Message]) { ([], [], []) }
    public var version: ProtocolVersion { .v3 }
    public var pendingRequests: Int { 0 }
    public var queuedMessages: Int { 0 }
    public var queuedBytes: UInt64 { 0 }
    public var unfinishedIncoming: Int { 0 }
    public var messagesSent: UInt64 { 0 }
    public var messagesReceived: UInt64 { 0 }
    public var framesSent: UInt64 { 0 }
    public var framesReceived: UInt64 { 0 }
    public var isIdle: Bool { true }
    public func releaseIdleMemory() {}
    public func propertiesFit(_ message: Message) -> Bool { true }
    public static func v1FrameLength(_ header: UnsafeRawBufferPointer) -> V1Length { .needMore }
}
