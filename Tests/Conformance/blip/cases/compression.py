"""Compression: a deflate stream for the connection in version 3, gzip of the body in version 2."""

import random
import zlib

from ..peer import check
from ..trial import case
from ..wire import COMPRESSED, ERROR, MORE, REPLY, REQUEST, TRAILER, gzip
from .frames import body_of, deliver

V3 = "BLIP 3 §Compression"
V2 = "BLIP 2 §Compression"
TEXT = b"".join(b"line %d of a text that can be compressed well\n" % index for index in range(2000))
NOBODY = [("Profile", "conformance/no-such-profile")]


def sender(body, flags=COMPRESSED, sizes=(3000,)):
    def send(peer, number, kind, properties):
        peer.socket.send_all(peer.make(number, kind, properties, body, flags, sizes))

    return send


@case("compression/message", V3)
def message(t):
    """A compressed message arrives: small, large, text, random bytes, and without body."""
    for body in (b"x", TEXT, body_of(60_000), bytes(200_000)):
        deliver(t, sender(body), body, COMPRESSED)
    deliver(t, sender(b""), b"", COMPRESSED)


@case("compression/history", V3 + ": one stream for all messages of a direction", versions=3)
def history(t):
    """The history goes on from message to message, and from frame to frame; uncompressed frames are not in it."""
    with t.open() as peer:
        for index in range(6):
            number = peer.new_number()
            content = peer.codec.content(NOBODY, TEXT[:2000])
            flags = COMPRESSED if index % 2 == 0 else 0
            frame = peer.frame(number, REQUEST | flags, content)
            check(index < 2 or not flags or len(frame) < 200, "this suite does not use the history")
            peer.socket.send(frame)
            peer.check_error(peer.reply(number), "BLIP", "404")


@case("compression/window", V3, versions=3)
def window(t):
    """Matches reach back over the whole window of 32 KiB and over many frames."""
    body = body_of(32_000) * 4
    deliver(t, sender(body, sizes=(5000,)), body, COMPRESSED)


@case("compression/mixed", "LiteCore and go-blip decide frame by frame", versions=3)
def mixed(t):
    """Frames of one message may be compressed or not, one by one."""
    body = TEXT[:20_000]

    def send(peer, number, kind, properties):
        content = peer.codec.content(properties, body)
        for index, (piece, more) in enumerate(peer.pieces(content, (1000,))):
            flags = COMPRESSED if index % 3 != 1 else 0
            peer.send_frame(number, kind | flags | (MORE if more else 0), piece)

    deliver(t, send, body, flags=None)


@case(
    "compression/empty-frames",
    "LiteCore can send compressed frames without a byte; they must not reach inflate",
    versions=3,
)
def empty_frames(t):
    """A compressed frame without a byte has no content, at every place, and the next one still inflates."""
    body = TEXT[:3000]

    def send(peer, number, kind, properties):
        content = peer.codec.content(properties, body)
        middle = len(content) // 2
        for piece in (content[:middle], b"", b"", content[middle:]):
            peer.send_frame(number, kind | COMPRESSED | MORE, piece, wire=b"" if not piece else None)
        peer.send_frame(number, kind | COMPRESSED, b"", wire=b"")

    deliver(t, send, body, COMPRESSED)
    with t.open() as peer:
        for _ in range(3):
            number = peer.new_number()
            peer.send_frame(number, REQUEST | COMPRESSED | MORE, b"", wire=b"")
            peer.send_frame(number, REQUEST | COMPRESSED, peer.codec.content(NOBODY))
            peer.check_error(peer.reply(number), "BLIP", "404")


@case("compression/zero-byte-frames", "go-blip ends some messages with a compressed frame of one byte 00", versions=3)
def zero_byte_frames(t):
    """A compressed frame of one byte 00, an empty block, has no content, at every place."""
    body = TEXT[:3000]

    def send(peer, number, kind, properties):
        content = peer.codec.content(properties, body)
        peer.send_frame(number, kind | COMPRESSED | MORE, b"", wire=b"\0")
        peer.send_frame(number, kind | COMPRESSED | MORE, content[:1000])
        peer.send_frame(number, kind | COMPRESSED | MORE, b"", wire=b"\0")
        peer.send_frame(number, kind | COMPRESSED | MORE, b"", wire=b"\0")
        peer.send_frame(number, kind | COMPRESSED | MORE, content[1000:])
        peer.send_frame(number, kind | COMPRESSED, b"", wire=b"\0")

    deliver(t, send, body, COMPRESSED)
    with t.open() as peer:
        for _ in range(3):
            number = peer.new_number()
            peer.send_frame(number, REQUEST | COMPRESSED | MORE, peer.codec.content(NOBODY))
            peer.send_frame(number, REQUEST | COMPRESSED, b"", wire=b"\0")
            peer.check_error(peer.reply(number), "BLIP", "404")


@case("compression/window-border", "go-blip fails where output ends on a border of 32 KiB; others must not", versions=3)
def window_border(t):
    """An empty compressed frame directly behind 32,768 bytes of output does no harm."""
    for wire in (b"\0", b""):

        def send(peer, number, kind, properties, wire=wire):
            content = peer.codec.content(properties, TEXT[:40_000])
            peer.send_frame(number, kind | COMPRESSED | MORE, content[:32_768])
            peer.send_frame(number, kind | COMPRESSED | MORE, b"", wire=wire)
            peer.send_frame(number, kind | COMPRESSED, content[32_768:])

        deliver(t, send, TEXT[:40_000], COMPRESSED)


@case(
    "compression/flushes",
    "deployed encoders: zlib, klauspost; partial, full and several flushes in a frame",
    versions=3,
)
def flushes(t):
    """Every deflate stream that ends in a sync flush inflates: full, partial and several flushes, all levels."""
    body = TEXT[:8000]
    strategies = [
        (0, zlib.Z_DEFAULT_STRATEGY), (1, zlib.Z_DEFAULT_STRATEGY), (9, zlib.Z_DEFAULT_STRATEGY),
        (6, zlib.Z_FIXED), (6, zlib.Z_HUFFMAN_ONLY), (6, zlib.Z_RLE),
    ]  # fmt: skip
    for level, strategy in strategies:

        def send(peer, number, kind, properties, level=level, strategy=strategy):
            deflater = zlib.compressobj(level, zlib.DEFLATED, -15, 8, strategy)
            content = peer.codec.content(properties, body)
            for index, (piece, more) in enumerate(peer.pieces(content, (900,))):
                half = len(piece) // 2
                between = (zlib.Z_NO_FLUSH, zlib.Z_PARTIAL_FLUSH, zlib.Z_FULL_FLUSH, zlib.Z_SYNC_FLUSH)[index % 4]
                data = deflater.compress(piece[:half])
                if between != zlib.Z_NO_FLUSH:
                    data += deflater.flush(between)
                last = zlib.Z_FULL_FLUSH if index % 5 == 4 else zlib.Z_SYNC_FLUSH
                data += deflater.compress(piece[half:]) + deflater.flush(last)
                check(data.endswith(TRAILER), "this suite cuts a trailer that is none")
                peer.send_frame(number, kind | COMPRESSED | (MORE if more else 0), piece, wire=data[:-4])

        deliver(t, send, body, COMPRESSED)


@case("compression/trailer-exactly-full", "pitfall: output buffers that a flush fills exactly", "server", 3)
def trailer_exactly_full(t):
    """Replies of every size around the frame's inflate: no trailer is missing, none is left in."""
    t.need("echo")
    random_ = random.Random(7)
    with t.open() as peer:
        for size in [*range(16_300, 16_420, 7), *range(4050, 4110, 7), 1, 2, 3, 32_768, 65_536]:
            body = random_.randbytes(size)
            reply = peer.reply(peer.request("echo", [], body, COMPRESSED, sizes=(8000,)))
            check(reply.body == body, f"{size} bytes came back changed")


@case("compression/bad-data", V3, versions=3)
def bad_data(t):
    """Compressed data that does not inflate is fatal."""
    ended = zlib.compressobj(6, zlib.DEFLATED, -15)
    end = ended.compress(b"\0" + b"x" * 50) + ended.flush()
    for wire in (b"\xff\xff\xff\xff", b"\x07garbage", body_of(300), end, b"\x00\x01\x00\xfe\xfe"):
        with t.open() as peer:
            peer.send_frame(peer.new_number(), REQUEST | COMPRESSED, b"", wire=wire)
            peer.expect_fatal(1002, 1007)


@case("compression/bad-later", V3, versions=3)
def bad_later(t):
    """Bad compressed data is fatal also in a later frame, and behind uncompressed ones."""
    with t.open() as peer:
        number = peer.new_number()
        peer.send_frame(number, REQUEST | COMPRESSED | MORE, peer.codec.content(NOBODY))
        peer.send_frame(number, REQUEST | MORE, b"plain")
        peer.send_frame(number, REQUEST | COMPRESSED | MORE, b"", wire=b"\xfe\xdc\xba")
        peer.expect_fatal(1002, 1007)


@case("compression/unwanted-reply", V3 + "; the stream is shared", "client", 3)
def unwanted_reply(t):
    """A reply that nobody waits for still goes through checksum and inflater."""
    with t.open(many=4, in_flight=2, wait=False) as peer:
        peer.wait_request(2)
        peer.respond(1, [("a", "b")], TEXT[:500], COMPRESSED)
        peer.answered.update((1, 2))
        peer.wait_request(3)
        peer.socket.send(peer.codec.frame(1, REPLY | COMPRESSED, peer.codec.content([], TEXT[:700])))
        peer.respond(2, [("a", "b")], TEXT[:800], COMPRESSED)
        peer.wait_request(4)


@case("compression/gzip", V2, versions=2)
def gzip_forms(t):
    """The body is a gzip stream, also one of other levels, with header fields, cut at every place into frames."""
    body = TEXT[:3000]
    named = b"\x1f\x8b\x08\x08\0\0\0\0\0\x03name\0" + gzip(body)[10:]
    for form in (gzip(body, 9), gzip(body, 0), gzip(body, 1), named):
        for sizes in ((1,), (4000,), (37, 1000)):

            def send(peer, number, kind, properties, form=form, sizes=sizes):
                content = peer.codec.content(properties) + form
                peer.socket.send_all(peer.make(number, kind | COMPRESSED, sizes=sizes, content=content))

            deliver(t, send, body, COMPRESSED)


@case("compression/zlib", "BLIP-Cocoa detects gzip or zlib", versions=2)
def zlib_form(t):
    """A body as zlib stream instead of gzip is taken as well."""
    body = TEXT[:3000]

    def send(peer, number, kind, properties):
        content = peer.codec.content(properties) + zlib.compress(body)
        peer.socket.send_all(peer.make(number, kind | COMPRESSED, content=content))

    deliver(t, send, body, COMPRESSED)


@case("compression/gzip-of-nothing", "BLIP-Cocoa sends an empty gzip stream, go-blip nothing", versions=2)
def gzip_of_nothing(t):
    """An empty body that is marked as compressed comes as an empty gzip stream or as nothing."""
    for form in (b"", gzip(b"")):

        def send(peer, number, kind, properties, form=form):
            content = peer.codec.content(properties) + form
            peer.socket.send_all(peer.make(number, kind | COMPRESSED, content=content))

        deliver(t, send, b"", COMPRESSED)


@case("compression/bad-gzip", "MYZip: fatal; libblip: fails the message", "server", 2)
def bad_gzip(t):
    """A body that is not whole gzip data fails its message, not the connection."""
    good = gzip(TEXT[:1000])
    wrong_sum = good[:-8] + bytes([good[-8] ^ 1]) + good[-7:]
    with t.open() as peer:
        for form in (b"no gzip at all", good[:-1], good[:5], good + b"behind", wrong_sum):
            number = peer.new_number()
            content = peer.codec.content([("Profile", "echo")]) + form
            peer.socket.send_all(peer.make(number, REQUEST | COMPRESSED, content=content, sizes=(100,)))
            reply = peer.reply_or_end(number)
            check(reply.kind == ERROR, f"{form[:20]!r} was taken for gzip: {reply}")
            peer.check_alive()


@case("compression/bad-gzip-reply", "MYZip: fatal; libblip: fails the request", "client", 2)
def bad_gzip_reply(t):
    """A reply whose body is no gzip data fails its request, not the connection."""
    with t.open() as peer:
        peer.wait_request()
        peer.answered.add(1)
        peer.expects_failure = True
        content = peer.codec.content([]) + b"no gzip at all"
        peer.socket.send_all(peer.make(1, REPLY | COMPRESSED, content=content))
    check(peer.result[0] != 0, "the client took it")
