import BLIP
import CBLIP
import Glibc

@c @implementation
public func blip_version_number() -> UInt32 {
    UInt32(BLIP_VERSION_MAJOR) * 1_000_000 + UInt32(BLIP_VERSION_MINOR) * 1000 + UInt32(BLIP_VERSION_PATCH)
}

private let versionString: StaticString = "1.0.0"

@c @implementation
public func blip_version_string() -> UnsafePointer<CChar>! { characters(versionString) }

@c @implementation
public func blip_status_name(_ status: blip_status) -> UnsafePointer<CChar>! {
    characters(StatusText.of(status)?.name ?? "BLIP_ERROR_UNKNOWN")
}

@c @implementation
public func blip_status_message(_ status: blip_status) -> UnsafePointer<CChar>! {
    characters(StatusText.of(status)?.message ?? "Not a status of this library.")
}

@c @implementation
public func blip_code_message(_ code: Int32) -> UnsafePointer<CChar>! { characters(CodeText.of(code)) }

/// A literal's characters, which end with NUL and live as long as the library.
private func characters(_ text: StaticString) -> UnsafePointer<CChar> {
    UnsafeRawPointer(text.utf8Start).assumingMemoryBound(to: CChar.self)
}

@c @implementation
public func blip_text(_ text: UnsafePointer<CChar>!) -> blip_slice {
    guard let text else { return blip_slice(data: nil, size: 0) }
    return blip_slice(data: text, size: strlen(text))
}
