import BLIP
import CBLIP

@c @implementation
public func blip_runtime_set_cookie(
    _ runtime: OpaquePointer!, _ url: blip_slice, _ cookie: blip_slice
) -> blip_status {
    withRuntime(runtime) { runtime in
        url.string { url in cookie.string { runtime.setCookie($0, for: url) } }
    }
}

@c @implementation
public func blip_runtime_cookies(
    _ runtime: OpaquePointer!, _ url: blip_slice, _ buffer: UnsafeMutableRawPointer!, _ capacity: Int,
    _ size: UnsafeMutablePointer<Int>!
) -> blip_status {
    withRuntime(runtime) { runtime in
        url.string { url in
            guard let buffer, let size else { return BLIP_ERROR_ARGUMENT }
            return runtime.cookies(for: url) { cookies in
                // A capacity that does not fit an Int is negative here, and enough.
                guard capacity < 0 || cookies.count <= capacity else { return BLIP_ERROR_LIMIT }
                if let base = cookies.baseAddress { buffer.copyMemory(from: base, byteCount: cookies.count) }
                size.pointee = cookies.count
                return BLIP_OK
            }
        }
    }
}

@c @implementation
public func blip_runtime_clear_cookies(_ runtime: OpaquePointer!) -> blip_status {
    withRuntime(runtime) { runtime in
        runtime.clearCookies()
        return BLIP_OK
    }
}
