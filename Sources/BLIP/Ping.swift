import CBLIP

/// A ping that is to be sent or waits for its pong.
struct Ping {
    let payload: UInt64
    let sentAt: UInt64
    let deadline: UInt64
    let handler: Handler<blip_pong_fn>?
    var isWritten = false
}
