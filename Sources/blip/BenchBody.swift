/// The body that a benchmark sends: JSON-like text that never moves, so that it can be lent to the library.
final class BenchBody: @unchecked Sendable {
    let bytes: UnsafeMutableRawBufferPointer

    init(size: Int) {
        bytes = .allocate(byteCount: size, alignment: 16)
        var offset = 0
        var number = 0
        while offset < size {
            let record = "{\"id\":\(number),\"name\":\"item \(number &* 7919 % 1000)\",\"price\":\(number % 97)},"
            for byte in record.utf8.prefix(size - offset) {
                bytes[offset] = byte
                offset += 1
            }
            number += 1
        }
    }

    deinit {
        bytes.deallocate()
    }
}
