import BLIP
import CBLIP

@c @implementation
public func blip_challenge_retain(_ challenge: OpaquePointer!) -> OpaquePointer! {
    HandleTable.retain(challenge, as: Challenge.self)
}

@c @implementation
public func blip_challenge_release(_ challenge: OpaquePointer!) { HandleTable.release(challenge, as: Challenge.self) }

@c @implementation
public func blip_challenge_connection(
    _ challenge: OpaquePointer!, _ connection: UnsafeMutablePointer<OpaquePointer?>!
) -> blip_status {
    HandleTable.with(challenge) { (challenge: Challenge) in put(challenge.connectionHandle, to: connection) }
}

@c @implementation
public func blip_challenge_host(_ challenge: OpaquePointer!, _ host: UnsafeMutablePointer<blip_slice>!) -> blip_status {
    HandleTable.with(challenge) { (challenge: Challenge) in put(challenge.host, to: host) }
}

@c @implementation
public func blip_challenge_is_proxy(_ challenge: OpaquePointer!, _ proxy: UnsafeMutablePointer<Bool>!) -> blip_status {
    HandleTable.with(challenge) { (challenge: Challenge) in put(challenge.isProxy, to: proxy) }
}

@c @implementation
public func blip_challenge_attempts(
    _ challenge: OpaquePointer!, _ attempts: UnsafeMutablePointer<UInt32>!
) -> blip_status {
    HandleTable.with(challenge) { (challenge: Challenge) in
        put(UInt32(clamping: challenge.attempts), to: attempts)
    }
}

@c @implementation
public func blip_challenge_count(_ challenge: OpaquePointer!, _ count: UnsafeMutablePointer<Int>!) -> blip_status {
    HandleTable.with(challenge) { (challenge: Challenge) in put(challenge.count, to: count) }
}

@c @implementation
public func blip_challenge_scheme(
    _ challenge: OpaquePointer!, _ index: Int, _ scheme: UnsafeMutablePointer<blip_slice>!
) -> blip_status {
    HandleTable.with(challenge) { (challenge: Challenge) in put(challenge.scheme(index), to: scheme) }
}

@c @implementation
public func blip_challenge_parameter(
    _ challenge: OpaquePointer!, _ index: Int, _ name: blip_slice, _ value: UnsafeMutablePointer<blip_slice>!
) -> blip_status {
    HandleTable.with(challenge) { (challenge: Challenge) in
        name.string { name in
            put(name.isEmpty ? challenge.token(index) : challenge.parameter(index, name), to: value)
        }
    }
}

@c @implementation
public func blip_challenge_answer_password(
    _ challenge: OpaquePointer!, _ user: blip_slice, _ password: blip_slice
) -> blip_status {
    HandleTable.with(challenge) { (challenge: Challenge) in
        user.string { user in password.text { challenge.answer(user: user, password: $0) } }
    }
}

@c @implementation
public func blip_challenge_answer_token(_ challenge: OpaquePointer!, _ token: blip_slice) -> blip_status {
    HandleTable.with(challenge) { (challenge: Challenge) in
        token.text { challenge.answer(token: $0) }
    }
}

@c @implementation
public func blip_challenge_answer_header(_ challenge: OpaquePointer!, _ value: blip_slice) -> blip_status {
    HandleTable.with(challenge) { (challenge: Challenge) in
        value.text { challenge.answer(header: $0) }
    }
}

@c @implementation
public func blip_challenge_cancel(_ challenge: OpaquePointer!) -> blip_status {
    HandleTable.with(challenge) { (challenge: Challenge) in challenge.cancel() }
}
