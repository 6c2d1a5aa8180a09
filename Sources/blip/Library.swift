import CBLIP

/// Small things around the functions of blip.h.
enum Library {
    static func name(of status: blip_status) -> String {
        blip_status_name(status).map { String(cString: $0) } ?? "status \(status)"
    }

    static func message(of status: blip_status) -> String {
        blip_status_message(status).map { String(cString: $0) } ?? "status \(status)"
    }

    /// Fails with the library's own words for the status.
    static func check(_ status: blip_status, _ what: String) throws(Failure) {
        guard status < 0 else { return }
        throw .usage("cannot \(what): \(message(of: status))", status: status)
    }

    /// An output slice of one of the library's getters, or nil when it has none to give.
    static func slice(_ get: (UnsafeMutablePointer<blip_slice>) -> blip_status) -> blip_slice? {
        var slice = blip_slice()
        return get(&slice) >= 0 ? slice : nil
    }
}

extension blip_slice {
    init(_ bytes: UnsafeRawBufferPointer) {
        self.init(data: bytes.baseAddress, size: bytes.count)
    }

    var bytes: UnsafeRawBufferPointer {
        UnsafeRawBufferPointer(start: data, count: data == nil ? 0 : size)
    }

    /// As text; bytes that are no UTF-8 become replacement characters.
    var string: String {
        String(decoding: bytes, as: UTF8.self)
    }
}

extension String {
    /// Lends the text to a function of the library.
    func withSlice<Result>(_ body: (blip_slice) -> Result) -> Result {
        var text = self
        return text.withUTF8 { body(blip_slice(UnsafeRawBufferPointer($0))) }
    }
}
