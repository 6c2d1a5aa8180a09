import BLIP
import CBLIP

@c @implementation
public func blip_error_status(_ error: OpaquePointer!) -> blip_status {
    HandleTable.with(error) { (error: ErrorRecord) in error.status }
}

@c @implementation
public func blip_error_domain(_ error: OpaquePointer!, _ domain: UnsafeMutablePointer<blip_slice>!) -> blip_status {
    HandleTable.with(error) { (error: ErrorRecord) in put(error.domain.slice, to: domain) }
}

@c @implementation
public func blip_error_code(_ error: OpaquePointer!, _ code: UnsafeMutablePointer<Int64>!) -> blip_status {
    HandleTable.with(error) { (error: ErrorRecord) in put(error.code, to: code) }
}

@c @implementation
public func blip_error_message(_ error: OpaquePointer!, _ message: UnsafeMutablePointer<blip_slice>!) -> blip_status {
    HandleTable.with(error) { (error: ErrorRecord) in put(error.message.slice, to: message) }
}

@c @implementation
public func blip_error_retain(_ error: OpaquePointer!) -> OpaquePointer! {
    HandleTable.retain(error, as: ErrorRecord.self)
}

@c @implementation
public func blip_error_release(_ error: OpaquePointer!) { HandleTable.release(error, as: ErrorRecord.self) }
