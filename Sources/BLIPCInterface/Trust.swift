import BLIP
import CBLIP

@c @implementation
public func blip_trust_retain(_ trust: OpaquePointer!) -> OpaquePointer! {
    HandleTable.retain(trust, as: TrustQuestion.self)
}

@c @implementation
public func blip_trust_release(_ trust: OpaquePointer!) { HandleTable.release(trust, as: TrustQuestion.self) }

@c @implementation
public func blip_trust_certificate(
    _ trust: OpaquePointer!, _ index: Int, _ der: UnsafeMutablePointer<blip_slice>!
) -> blip_status {
    HandleTable.with(trust) { (trust: TrustQuestion) in put(trust.certificate(index), to: der) }
}

@c @implementation
public func blip_trust_host(_ trust: OpaquePointer!, _ host: UnsafeMutablePointer<blip_slice>!) -> blip_status {
    HandleTable.with(trust) { (trust: TrustQuestion) in put(trust.host, to: host) }
}

@c @implementation
public func blip_trust_verdict(
    _ trust: OpaquePointer!, _ code: UnsafeMutablePointer<Int32>!, _ text: UnsafeMutablePointer<blip_slice>!
) -> blip_status {
    HandleTable.with(trust) { (trust: TrustQuestion) in
        guard code != nil else { return BLIP_ERROR_ARGUMENT }
        let status = put(trust.text.slice, to: text)
        return status == BLIP_OK ? put(trust.code, to: code) : status
    }
}

@c @implementation
public func blip_trust_accept(_ trust: OpaquePointer!) -> blip_status {
    HandleTable.with(trust) { (trust: TrustQuestion) in trust.answer(true) ? BLIP_OK : BLIP_ERROR_STATE }
}

@c @implementation
public func blip_trust_reject(_ trust: OpaquePointer!) -> blip_status {
    HandleTable.with(trust) { (trust: TrustQuestion) in trust.answer(false) ? BLIP_OK : BLIP_ERROR_STATE }
}
