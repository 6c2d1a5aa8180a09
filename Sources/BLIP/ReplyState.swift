/// How an incoming request stands with its response.
enum ReplyState {
    static let open: UInt8 = 0
    static let deferred: UInt8 = 1
    static let replied: UInt8 = 2
}
