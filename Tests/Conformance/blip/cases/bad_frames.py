"""Frames that are none: the connection has to be closed, with the code that says so."""

from ..peer import Failed, check
from ..trial import case
from ..websocket import TEXT, Ended
from ..wire import ACK_REPLY, ACK_REQUEST, COMPRESSED, ERROR, NO_REPLY, REPLY, REQUEST, URGENT, varint

FATAL = "BLIP 3 §Frames; peers close"


def fatal(trial, frames, *codes, opcode=2):
    """Each of these, on a fresh connection, ends it."""
    for data in frames:
        with trial.open() as peer:
            try:
                peer.socket.send(data, opcode)
            except Ended:
                pass
            try:
                peer.expect_fatal(*codes or (1002,))
            except Failed as error:
                raise Failed(f"after {data[:24].hex() or 'an empty frame'}: {error}") from None


@case("bad/empty", FATAL)
def empty(t):
    """A frame without a byte is fatal."""
    fatal(t, [b""])


@case("bad/cut-header", FATAL)
def cut_header(t):
    """A frame that ends inside its number or flags is fatal."""
    fatal(t, [b"\x01", b"\x80", b"\x81\x80\x80", b"\x01\x80"])


@case("bad/varints", "BLIP 3 §Frames: at most 64 bits; Go and fleece reject more")
def varints(t):
    """A number of more than 64 bits, or more than ten bytes, is fatal."""
    tail = b"\x00\x00\x00\x00\x00\x00"
    fatal(t, [b"\xff" * 9 + b"\x02" + tail, b"\x80" * 10 + b"\x00" + tail, b"\x81" * 12 + tail])


@case("bad/flags-too-large", "BLIP-Cocoa: flags above 8 bits are fatal", versions=2)
def flags_too_large(t):
    """In version 2, flags of more than 8 bits are fatal."""
    fatal(t, [b"\x01\x80\x02\x00"])


@case("bad/cut-acknowledgement", FATAL)
def cut_acknowledgement(t):
    """An acknowledgement without a whole count is fatal."""
    flags = URGENT | NO_REPLY
    fatal(t, [bytes([1, ACK_REQUEST | flags]), bytes([1, ACK_REPLY | flags, 0x80]), b"\x01\x34" + b"\xff" * 11])


@case("bad/text", "BLIP 3 §Transport: text messages are errors; go-blip and LiteCore take them for frames")
def text(t):
    """A text message is fatal, also if it holds a frame."""
    for data in (b"hello", None):
        with t.open() as peer:
            if data is None:
                content = peer.codec.content([("Profile", "conformance/no-such-profile")])
                data = peer.frame(peer.new_number(), REQUEST, content)
            peer.socket.send(data, TEXT)
            peer.drain(0.2)
            if peer.has_reply(1):
                t.strict(False, "a text message was taken for a frame")
                continue
            # Text has to be UTF-8, too.
            peer.expect_fatal(1002, 1003, 1007)


@case("bad/unknown-types", "BLIP 3 §Frames: types for later versions; LiteCore skips them before the codec")
def unknown_types(t):
    """Frames of unknown types are skipped; neither checksum nor compression sees them."""
    with t.open() as peer:
        for kind in (3, 6, 7):
            peer.socket.send(bytes([peer.next_number, kind]) + b"\x00\x01\x02\x03\x04")
            peer.socket.send(bytes([9, kind | COMPRESSED]) + b"\xff\xff\xff\xff\xff\xff")
            peer.socket.send(bytes([0, kind]))
            peer.drain(0.1)
            # Peers are known that let the codec see them.
            peer.note_end()
            peer.silence(0.05)
            peer.check_alive()


@case("bad/undefined-flag", "go-blip and LiteCore keep the low 8 bits", versions=3)
def undefined_flag(t):
    """Flag bits without a meaning are ignored, also above the eighth."""
    with t.open() as peer:
        content = peer.codec.content([("Profile", "conformance/no-such-profile")])
        for bits in (0x80, 0x100, 0x4000):
            number = peer.new_number()
            peer.socket.send(peer.frame(number, REQUEST | bits, content))
            peer.check_error(peer.reply(number), "BLIP", "404")


@case("bad/huge-number", "BLIP 3 §Frames")
def huge_number(t):
    """A request number out of range is fatal, and takes no memory."""
    with t.open() as peer:
        data = peer.codec.frame((1 << 64) - 1, REQUEST, peer.codec.content([]))
        peer.socket.send(data)
        peer.expect_fatal(1002)


@case("bad/garbage", "robustness")
def garbage(t):
    """Random bytes as frames end the connection at some point, and nothing else."""
    state = 12345
    for _ in range(6):
        with t.open() as peer:
            try:
                for _ in range(400):
                    state = (state * 6364136223846793005 + 1442695040888963407) % (1 << 64)
                    size = state >> 58
                    data = bytearray((state.to_bytes(8, "big") * (size // 8 + 1))[:size])
                    if data and data[0] & 7 in (REPLY, ERROR):
                        # It might be the reply that a client waits for.
                        data[0] |= 4
                    peer.socket.send(varint(state % 3) + data)
            except Ended:
                pass
            peer.pump(lambda p=peer: p.socket.close_code is not None or p.socket.is_ended)
            check(peer.socket.close_code is not None or peer.socket.is_ended, "400 random frames were taken")
            peer.expect_fatal(1002, 1007, 1009)
