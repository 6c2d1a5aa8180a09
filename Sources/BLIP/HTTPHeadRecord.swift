import WebSocketProtocol

/// The peer's HTTP headers in one piece of memory: name NUL value NUL …, names in lower case.
final class HTTPHeadRecord: @unchecked Sendable {
    private let text: Text

    init(_ headers: HTTPHeaders) {
        var bytes: [UInt8] = []
        for header in headers.lines {
            bytes.append(contentsOf: header.name.lowercased().utf8)
            bytes.append(0)
            bytes.append(contentsOf: header.value.utf8)
            bytes.append(0)
        }
        text = Text(bytes)
        bytes.wipe()
    }

    /// It may hold passwords, tokens and cookies.
    deinit { text.wipe() }

    /// The value of the first header of that name, whatever its case; it lies in this record's memory.
    func value(of name: String) -> UnsafeRawBufferPointer? {
        guard let bytes = text.slice.bytes else { return nil }
        let wanted = Array(name.lowercased().utf8)
        var start = 0
        while let nameEnd = bytes[start...].firstIndex(of: 0),
            let valueEnd = bytes[(nameEnd + 1)...].firstIndex(of: 0)
        {
            if bytes[start..<nameEnd].elementsEqual(wanted) {
                return UnsafeRawBufferPointer(rebasing: bytes[(nameEnd + 1)..<valueEnd])
            }
            start = valueEnd + 1
        }
        return nil
    }
}
