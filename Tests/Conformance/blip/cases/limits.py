"""What costs the implementation under test more than the peer: it has to be bounded."""

import struct
import time
import zlib

from ..peer import check
from ..trial import case
from ..websocket import Ended
from ..wire import ACK_REPLY, COMPRESSED, ERROR, MORE, NO_REPLY, REQUEST

SOURCE = "limits of libblip"
NOBODY = [("Profile", "conformance/no-such-profile")]


def survives(trial, peer, *codes):
    """Either the conversation goes on, or it was closed because of a limit."""
    try:
        peer.drain(0.2)
        if peer.socket.close_code is None and not peer.socket.is_ended:
            return peer.check_alive()
    except Ended:
        pass
    return peer.expect_fatal(*codes)


@case("limit/claimed-length", "RFC 6455 §5.2")
def claimed_length(t):
    """A WebSocket frame that claims to be enormous is refused before it comes."""
    for size in (1 << 31, (1 << 62) + 5):
        with t.open() as peer:
            peer.socket.write(peer.socket.encode(2, b"begin", length=size))
            peer.expect_fatal(1009)


@case("limit/claimed-properties", "BLIP 3 §Properties")
def claimed_properties(t):
    """Properties that claim to be enormous fail the message and take no memory."""
    with t.open() as peer:
        for size in (b"\xff\xff\xff\xff\x0f", b"\xff" * 8 + b"\x7f"):
            number = peer.new_number()
            peer.send_frame(number, REQUEST, size + b"Profile\0x\0")
            peer.expect_failed_request(number, "400", "413")


@case("limit/unfinished", SOURCE + ": 4,096 unfinished messages")
def unfinished(t):
    """Messages that are begun and never finished come to a limit."""
    with t.open() as peer:
        content = peer.codec.content(NOBODY)
        frames = [peer.frame(peer.new_number(), REQUEST | MORE, content) for _ in range(4200)]
        try:
            peer.socket.send_all(frames)
        except Ended:
            pass
        peer.drain(0.3)
        if peer.socket.close_code is None and not peer.socket.is_ended:
            return t.strict(False, "4,200 unfinished messages were taken")
        peer.expect_fatal(1009, 1008)


@case("limit/inflated", SOURCE + ": 64 MiB a message", versions=3)
def inflated(t):
    """Frames that inflate a thousandfold come to the limit of a message, or are consumed as they come."""
    with t.open() as peer:
        number = peer.new_number()
        try:
            peer.send_frame(number, REQUEST | MORE | COMPRESSED, peer.codec.content(NOBODY))
            zeros = bytes(15 << 20)
            for _ in range(6):
                peer.send_frame(number, REQUEST | MORE | COMPRESSED, zeros)
            peer.send_frame(number, REQUEST | COMPRESSED, b"end")
        except Ended:
            pass
        peer.pump(lambda: peer.has_reply(number) or peer.socket.close_code is not None, 20)
        if peer.has_reply(number):
            check(peer.reply(number).kind == ERROR, "an error was due")
        survives(t, peer, 1009, 1002)


@case("limit/inflated-bomb", SOURCE + ": one frame may inflate 1,030-fold", versions=3)
def inflated_bomb(t):
    """One large frame that inflates to hundreds of megabytes is not unpacked without bound."""
    compressor = zlib.compressobj(9, zlib.DEFLATED, -15)
    data = b"".join(compressor.compress(bytes(1 << 20)) for _ in range(300)) + compressor.flush(zlib.Z_SYNC_FLUSH)
    with t.open() as peer:
        started = time.monotonic()
        try:
            peer.socket.send(b"\x01" + bytes([REQUEST | COMPRESSED]) + data[:-4] + struct.pack(">I", 0))
        except Ended:
            pass
        peer.expect_fatal(1009, 1002)
        t.strict(time.monotonic() - started < 5, "it took long")


@case("limit/gzip-bomb", SOURCE + ": 64 MiB a message", versions=2)
def gzip_bomb(t):
    """A gzip body that inflates beyond the limit of a message fails that message."""
    compressor = zlib.compressobj(9, zlib.DEFLATED, 31)
    body = b"".join(compressor.compress(bytes(1 << 20)) for _ in range(150)) + compressor.flush()
    with t.open() as peer:
        content = peer.codec.content(NOBODY) + body
        number = peer.new_number()
        try:
            for start in range(0, len(content), 16000):
                more = start + 16000 < len(content)
                flags = REQUEST | COMPRESSED | (MORE if more else 0)
                peer.send_frame(number, flags, content[start : start + 16000])
        except Ended:
            pass
        peer.pump(lambda: peer.has_reply(number) or peer.socket.close_code is not None, 20)
        survives(t, peer, 1009)


@case("limit/empty-frames", "robustness")
def empty_frames(t):
    """Twenty thousand empty frames of one message do no harm."""
    with t.open() as peer:
        number = peer.new_number()
        peer.send_frame(number, REQUEST | MORE, peer.codec.content(NOBODY))
        frames = [peer.frame(number, REQUEST | MORE) for _ in range(20_000)]
        peer.socket.send_all(frames)
        peer.send_frame(number, REQUEST)
        peer.check_error(peer.reply(number, 20), "BLIP", "404")


@case("limit/acknowledgements", "robustness")
def acknowledgements(t):
    """Twenty thousand acknowledgements of nothing do no harm."""
    with t.open() as peer:
        flags = bytes([ACK_REPLY | 0x30])
        peer.socket.send_all([bytes([index % 100]) + flags + b"\x05" for index in range(20_000)])
        peer.check_alive()


@case("limit/pings", "RFC 6455 §5.5.2: the last one may be answered alone")
def pings(t):
    """Five thousand pings do no harm, and the last one is answered."""
    with t.open() as peer:
        peer.socket.write(b"".join(peer.socket.encode(9, b"%d" % index) for index in range(5000)))
        peer.wait(lambda: b"4999" in peer.socket.pongs, "the last ping is not answered")
        peer.check_alive()


@case("limit/one-byte-frames", "BLIP 3 §Frames: any size")
def one_byte_frames(t):
    """A message of twenty thousand frames of one byte arrives."""
    with t.open() as peer:
        number = peer.new_number()
        peer.socket.send_all(peer.make(number, REQUEST, NOBODY, b"x" * 20_000, sizes=(40, 1)))
        peer.check_error(peer.reply(number, 20), "BLIP", "404")


@case("limit/many-requests", "robustness")
def many_requests(t):
    """Five thousand requests in one go are answered, or taken in silence if they want no reply."""
    with t.open() as peer:
        frames = []
        for index in range(5000):
            flags = NO_REPLY if index % 2 else 0
            frames += peer.make(peer.new_number(), REQUEST, NOBODY, b"", flags)
        peer.socket.send_all(frames)
        for number in range(1, 5000, 2):
            peer.check_error(peer.reply(number, 20), "BLIP", "404")
        peer.silence(0.1)
