"""The end of a conversation."""

import struct

from ..peer import check
from ..trial import case
from ..websocket import CLOSE
from ..wire import MORE, REPLY, REQUEST

SOURCE = "RFC 6455 §7"
NOBODY = [("Profile", "conformance/no-such-profile")]


def closes(trial, payload, *answers):
    """Our close frame is answered with one of these codes (0: without one); then TCP ends."""
    with trial.open() as peer:
        peer.socket.close_sent = True
        peer.socket.write(peer.socket.encode(CLOSE, payload))
        peer.fatal = True
        peer.wait(lambda: peer.socket.close_code is not None, "the close frame is not answered")
        code = peer.socket.close_code
        check(code not in (1005, 1006, 1015), f"it put close code {code} on the wire")
        trial.strict(code in answers, f"{payload.hex()} was answered with {code}, not {answers}")
        peer.end_closing()


@case("close/codes", SOURCE)
def codes(t):
    """A close frame is answered with its code, and the TCP connection ends."""
    for code in (1000, 1001, 1002, 1003, 1007, 1008, 1009, 1011, 3000, 4999):
        closes(t, struct.pack(">H", code) + b"because", code, 1000)


@case("close/no-code", SOURCE + ".1.5: 1005 is never sent")
def no_code(t):
    """A close frame without code is answered with one without code, or with 1000; never with 1005."""
    closes(t, b"", 0, 1000)


@case("close/bad-codes", SOURCE + ".4")
def bad_codes(t):
    """Codes that may not be on the wire, a payload of one byte and bad UTF-8 are errors."""
    for code in (0, 999, 1004, 1005, 1006, 1015, 1016, 2999, 5000, 65535):
        closes(t, struct.pack(">H", code), 1002)
    closes(t, b"\x03", 1002)
    closes(t, b"\x03\xe8\xff\xff", 1007, 1002)


@case("close/behind", SOURCE + ".1.4")
def behind(t):
    """What comes behind a close frame is not looked at."""
    with t.open() as peer:
        number = peer.new_number()
        frame = peer.make(number, REQUEST, NOBODY)[0]
        socket = peer.socket
        socket.close_sent = True
        data = socket.encode(CLOSE, b"\x03\xe8") + socket.encode(2, frame) + socket.encode(2, b"") + b"garbage"
        socket.write(data)
        peer.fatal = True
        peer.wait(lambda: socket.close_code is not None, "the close frame is not answered")
        t.strict(socket.close_code in (0, 1000), f"answered with {socket.close_code}")
        check(not peer.has_reply(number), "a request behind the close frame was answered")
        peer.end_closing()


@case("close/unfinished", "BLIP 3 §Closing")
def unfinished(t):
    """Messages that are under way when the connection closes are forgotten; the close handshake goes on."""
    with t.open() as peer:
        number = peer.new_number()
        peer.send_frame(number, REQUEST | MORE, peer.codec.content(NOBODY, b"x" * 1000))
        peer.socket.send_close(1001)
        peer.fatal = True
        peer.wait(lambda: peer.socket.close_code is not None, "the close frame is not answered")
        peer.end_closing()


@case("close/under-traffic", "BLIP 3 §Closing", "server")
def under_traffic(t):
    """A close frame is answered in the middle of a large reply, at once."""
    t.need("source")
    with t.open() as peer:
        peer.request("source", [("size", "100000000")])
        peer.wait(lambda: peer.frames, "nothing comes")
        peer.socket.send_close(1000)
        peer.fatal = True
        peer.wait(lambda: peer.socket.close_code is not None, "the close frame is not answered")
        peer.end_closing()


@case("close/dropped", "robustness")
def dropped(t):
    """A TCP connection that ends or resets without a close frame, anywhere in a frame, harms nobody else."""
    for count in (0, 1, 3, 20):
        for reset in (False, True):
            with t.open() as peer:
                frame = peer.socket.encode(2, peer.make(peer.new_number(), REQUEST, NOBODY, b"x" * 300)[0])
                if count:
                    peer.socket.write(frame[:count])
                peer.fatal = True
                peer.socket.reset() if reset else peer.socket.close()


@case("close/half", "TCP")
def half(t):
    """A peer that ends its side of TCP without a close frame does not keep the connection."""
    with t.open() as peer:
        peer.socket.socket.shutdown(1)
        peer.fatal = True
        peer.pump(lambda: peer.socket.is_ended)
        check(peer.socket.is_ended, "the connection stays open")


@case("close/by-client", SOURCE + ".1.1", "client")
def by_client(t):
    """After its reply the client closes with 1000, and waits for our close frame."""
    with t.open() as peer:
        peer.wait_request()
        peer.answered.add(1)
        peer.socket.send_all(peer.make(1, REPLY, [], b"thanks"))
        peer.wait(lambda: peer.socket.close_code is not None, "it does not close")
        t.strict(peer.socket.close_code == 1000, f"it closed with {peer.socket.close_code}")
    check(peer.result[1] == b"thanks", f"it wrote {peer.result[1]!r}")


@case("close/masking", "RFC 6455 §5.1")
def masking(t):
    """A frame with the mask of the other role is fatal."""
    with t.open() as peer:
        frame = peer.make(peer.new_number(), REQUEST, NOBODY)[0]
        peer.socket.write(peer.socket.encode(2, frame, masked=not peer.socket.is_client))
        peer.expect_fatal(1002)


@case("close/websocket-violations", "RFC 6455 §5.2, §5.4, §5.5")
def violations(t):
    """Reserved bits and opcodes, and control frames that are too long or in fragments, are fatal."""
    for opcode, data, final, bits in (
        (2, b"x", True, 0x40),
        (2, b"x", True, 0x10),
        (3, b"x", True, 0),
        (11, b"", True, 0),
        (9, b"x" * 126, True, 0),
        (9, b"x", False, 0),
        (0, b"x", True, 0),
    ):
        with t.open() as peer:
            peer.socket.write(peer.socket.encode(opcode, data, final, bits))
            peer.expect_fatal(1002)
