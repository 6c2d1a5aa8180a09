/// Frames that a carrier brings whole: there is nothing around them.
final class FrameLink: Link {
    var bytesSent: UInt64 = 0
    var bytesReceived: UInt64 = 0
    /// Its place among the sessions of the loop.
    var place = -1

    override func close(code: UInt16, reason: [UInt8], _ connection: Connection) {
        connection.endCarrier(code: code, reason: reason)
    }

    override func fail(code: UInt16, text: String, _ connection: Connection) {
        var text = text
        connection.endCarrier(code: code, reason: text.withUTF8 { [UInt8]($0.prefix(123)) })
    }
}
