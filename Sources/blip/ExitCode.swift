/// What the tool tells its caller. They are part of its interface: see blip(1).
enum ExitCode {
    static let success: Int32 = 0
    static let errorReply: Int32 = 1
    static let noConnection: Int32 = 2
    static let usage: Int32 = 64
}
