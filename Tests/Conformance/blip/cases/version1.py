"""BLIP 1, on a bare byte stream."""

import random
import socket
import struct
import time
import zlib

from ..peer import check
from ..stream import ABBREVIATIONS, COMPRESSED, META, MORE, NO_REPLY, URGENT, content_of, encode
from ..trial import case
from ..wire import ERROR, REPLY, REQUEST, gzip

SOURCE = "BLIP 1 §"
NOBODY = [("Profile", "conformance/no-such-profile")]


def body_of(size):
    return bytes(random.Random(size).choices(range(256), k=size))


# Frames.


@case("v1/frames", SOURCE + "Framing", versions=1)
def frames(t):
    """Messages cut into frames of any size are read."""
    for sizes in ((1,), (1, 2, 3, 500), (20,), (4084,), (16372,), (65523,)):
        with t.open() as peer:
            for body in (b"", b"x" * 100, body_of(3000) if sizes[0] < 20 else body_of(70_000)):
                number = peer.request("conformance/no-such-profile", body=body, sizes=sizes)
                peer.check_error(peer.reply(number), "BLIP", "404")


@case("v1/segments", SOURCE + "Framing", versions=1)
def segments(t):
    """The bytes of frames come one by one, or many frames at once."""
    with t.open() as peer:
        number = peer.request("conformance/no-such-profile", body=b"y" * 100, sizes=(40,), segment=1)
        peer.reply(number)
        numbers = [peer.new_number() for _ in range(200)]
        peer.write(b"".join(b"".join(peer.frames_of(number, REQUEST, NOBODY)) for number in numbers))
        for number in numbers:
            peer.check_error(peer.reply(number), "BLIP", "404")


@case("v1/interleaved", SOURCE + "Framing", versions=1)
def interleaved(t):
    """Frames of several messages come in turn."""
    with t.open() as peer:
        numbers = [peer.new_number() for _ in range(5)]
        messages = [list(peer.frames_of(number, REQUEST, NOBODY, b"z" * 900, sizes=(100,))) for number in numbers]
        for turn in zip(*messages):
            peer.write(b"".join(turn))
        for number in numbers:
            peer.check_error(peer.reply(number), "BLIP", "404")


@case("v1/bad-magic", SOURCE + "Framing", versions=1)
def bad_magic(t):
    """A frame that does not begin with 9B34F206 is fatal, after good ones too; so is 9B34F205, of BLIP 1.0."""
    for magic in (0x9B34F205, 0x9B34F207, 0, 0xFFFFFFFF):
        for good in (False, True):
            with t.open() as peer:
                if good:
                    peer.check_alive()
                peer.write(encode(peer.next_number, REQUEST, content_of(NOBODY), magic=magic) + b"\0" * 64)
                # What begins like nothing known may wait for more, as a first line of HTTP does.
                if not good and t.role == "server" and magic >> 24 != 0x9B:
                    peer.is_over = True
                    continue
                peer.expect_end()


@case("v1/bad-size", SOURCE + "Framing", versions=1)
def bad_size(t):
    """A frame that says to be smaller than its header is fatal."""
    for size in (0, 1, 11):
        with t.open() as peer:
            peer.check_alive()
            peer.write(encode(peer.next_number, REQUEST, content_of(NOBODY), size=size))
            peer.expect_end()


@case("v1/types-and-flags", SOURCE + "Framing", versions=1)
def types_and_flags(t):
    """Frames of unknown types, and flags without meaning, are ignored."""
    with t.open() as peer:
        for kind in (3, 4, 5, 15):
            peer.write(encode(1, kind, b"whatever"))
        peer.check_alive()
        number = peer.new_number()
        peer.write(encode(number, REQUEST | 0xFE00, content_of(NOBODY)))
        peer.check_error(peer.reply(number), "BLIP", "404")


# Numbers.


@case("v1/numbers", SOURCE + "Message Numbering; peers close", versions=1)
def numbers(t):
    """A request number that is zero, skips one or comes again is fatal, and so is a reply to nothing."""
    for kind, number in ((REQUEST, 0), (REQUEST, 1), (REQUEST, 3), (REPLY, 99), (ERROR, 0xFFFFFFFF), (REPLY, 0)):
        with t.open() as peer:
            peer.check_alive()
            peer.write(encode(number, kind, content_of(NOBODY)))
            peer.expect_end()


# Properties.


@case("v1/abbreviations", SOURCE + "Message Properties", "server", versions=1)
def abbreviations(t):
    """The nine abbreviations stand for keys and values."""
    t.need("echo")
    with t.open() as peer:
        for index, text in enumerate(ABBREVIATIONS, 1):
            number = peer.request("echo", [("key", bytes([index])), ("Other", text)], b"b")
            properties = dict(peer.reply(number).properties)
            check(properties.get("key") == text.decode(), f"abbreviation {index} became {properties.get('key')!r}")
            check(properties.get("Other") == text.decode(), f"{text} became {properties.get('Other')!r}")
        number = peer.new_number()
        peer.write(encode(number, REQUEST, content_of([(b"\2", "echo"), (b"\1", b"\6")], b"b")))
        check(peer.reply(number).property("Content-Type") == "text/yaml", "abbreviated keys are not understood")


@case("v1/unknown-abbreviation", SOURCE + "Message Properties", versions=1)
def unknown_abbreviation(t):
    """An abbreviation that stands for nothing is an error of its message alone."""
    with t.open() as peer:
        for index in (10, 31):
            number = peer.request("conformance/no-such-profile", [("key", bytes([index]))])
            peer.check_error(peer.reply(number), "BLIP", "400")
        peer.check_alive()


@case("v1/bad-properties", SOURCE + "Message Properties", versions=1)
def bad_properties(t):
    """Properties that are malformed are an error of their message alone."""
    with t.open() as peer:
        for content in (b"", b"\0", b"\0\3a\0b", b"\0\2a\0", b"\0\3a\0b\0", b"\0\4\xff\0b\0"):
            number = peer.new_number()
            peer.write(encode(number, REQUEST, content))
            peer.check_error(peer.reply(number), "BLIP", "400")
        peer.check_alive()


@case("v1/large-properties", SOURCE + "Message Properties", "server", versions=1)
def large_properties(t):
    """Properties go over several frames, up to 65,535 bytes."""
    t.need("echo")
    with t.open() as peer:
        value = "v" * (0xFFFF - len("\2\0echo\0k\0\0"))
        number = peer.new_number()
        content = content_of([(b"\2", "echo"), ("k", value)])
        check(content[:2] == b"\xff\xff", "the case is wrong")
        peer.write(b"".join(peer.frames_of(number, REQUEST, content=content, sizes=(1, 1, 3000))))
        check(peer.reply(number).property("k") == value, "a large property came back changed")


# Bodies.


@case("v1/echo", SOURCE + "Messages", "server", versions=1)
def echo(t):
    """Bodies of all sizes come back, compressed and not, urgent and not."""
    t.need("echo")
    with t.open() as peer:
        for size in (0, 1, 4082, 16_300, 16_384, 100_000, 1_000_000):
            for flags in (0, COMPRESSED, URGENT, COMPRESSED | URGENT):
                body = body_of(size) if flags else b"abc" * (size // 3)
                number = peer.request("echo", [("a", "ü")], body, flags, (16372,))
                reply = peer.reply(number)
                check(reply.kind == REPLY and reply.body == body, f"{size} bytes, flags {flags:x}: {reply} came back")
                check(reply.property("a") == "ü", f"the property became {reply.property('a')!r}")
                t.strict(reply.flags & URGENT == flags & URGENT, "a reply does not inherit Urgent of its request")


@case("v1/gzip", SOURCE + "Compression", versions=1)
def gzip_bodies(t):
    """A compressed body is one gzip stream over all frames; without a body there is none."""
    with t.open() as peer:
        for body, sizes in ((b"", (4000,)), (b"a", (1,)), (b"abc" * 50_000, (50,)), (body_of(50_000), (4000,))):
            number = peer.request("conformance/no-such-profile", body=body, flags=COMPRESSED, sizes=sizes)
            peer.check_error(peer.reply(number), "BLIP", "404")


@case("v1/bad-gzip", SOURCE + "Compression", versions=1)
def bad_gzip(t):
    """A body that is no gzip, cut short, damaged or continued behind its end is an error of its message alone."""
    good = gzip(b"some text that is worth the while " * 10)
    damaged = bytearray(good)
    damaged[-6] ^= 1
    with t.open() as peer:
        for body in (b"plain", good[:-1], good[:20], bytes(damaged), good + b"x"):
            number = peer.new_number()
            peer.write(encode(number, REQUEST | COMPRESSED, content_of(NOBODY) + body))
            peer.check_error(peer.reply(number), "BLIP", "400")
        peer.check_alive()


@case("v1/bomb", "robustness", "server", versions=1)
def bomb(t):
    """A body that inflates beyond the limit is refused, and costs little."""
    compressor = zlib.compressobj(9, zlib.DEFLATED, 31)
    data = b"".join(compressor.compress(bytes(1 << 20)) for _ in range(200)) + compressor.flush()
    with t.open() as peer:
        number = peer.new_number()
        content = content_of([("Profile", "conformance/no-such-profile")]) + data
        peer.write(b"".join(peer.frames_of(number, REQUEST, flags=COMPRESSED, content=content, sizes=(16_000,))))
        peer.check_error(peer.reply(number), "BLIP", "413", "503", "404")
        peer.check_alive()


# Replies.


@case("v1/errors", SOURCE + "Error Replies", "server", versions=1)
def errors(t):
    """An error has its domain, its code in decimal, and its text as body."""
    t.need("error")
    with t.open() as peer:
        number = peer.request("error", [("domain", "Test"), ("code", "-77"), ("text", "no änder")])
        reply = peer.reply(number)
        peer.check_error(reply, "Test", "-77")
        check(reply.body == "no änder".encode(), f"the text became {reply.body!r}")


@case("v1/no-reply", SOURCE + "Flags", versions=1)
def no_reply(t):
    """A request that wants no reply gets none, not even an error."""
    with t.open() as peer:
        if t.role == "client":
            peer.wait_request()
        peer.request("conformance/no-such-profile", flags=NO_REPLY)
        peer.silence()
        peer.check_alive()


@case("v1/request", SOURCE + "Messages", "client", versions=1)
def request(t):
    """A request holds its profile, body and flags, in frames of at most 16,384 bytes."""
    flags = {"compressed": COMPRESSED, "urgent": URGENT}
    for size, flag in ((0, None), (50_000, None), (50_000, "compressed"), (10, "urgent")):
        body = b"compressible " * (size // 13)
        with t.open(body=body, flags=(flag,) if flag else ()) as peer:
            sent = peer.wait_request()
            check(sent.property("Profile") == "echo" and sent.body == body, f"{sent} came, not what was sent")
            check(sent.flags & (COMPRESSED | URGENT) == flags.get(flag, 0), f"flags {sent.flags:x}")
            sizes = peer.incoming[(False, sent.number)].sizes
            t.strict(min(sizes[:-1], default=16384) > 8192, f"frames of {min(sizes)} bytes")


@case("v1/replies", SOURCE + "Messages", "client", versions=1)
def replies(t):
    """The client gets the reply's body whole, compressed or not."""
    for size, flags in ((0, 0), (1, 0), (300_000, 0), (300_000, COMPRESSED)):
        body = body_of(size)
        with t.open() as peer:
            peer.respond(peer.wait_request().number, [("Content-Type", "text/plain")], body, flags, (16_000,))
            peer.finish()
            peer.is_over = True
            check(peer.result[1] == body, f"{len(peer.result[1])} bytes of {size} were written")


@case("v1/error-reply", SOURCE + "Error Replies", "client", versions=1)
def error_reply(t):
    """An error, also one with its text in a property, or without domain and code, is one for the client."""
    for properties in ([("Error-Domain", "X"), ("Error-Code", "5")], [(b"\x09", "X"), (b"\x08", "5")], []):
        with t.open() as peer:
            peer.respond(peer.wait_request().number, properties, b"because", kind=ERROR)
            peer.expects_failure = True
            peer.finish()
            peer.is_over = True
            check(peer.result[0] != 0, "the client ended with status 0")


# Ends.


@case("v1/bye", SOURCE + "Closing; MYNetwork", versions=1)
def bye(t):
    """Bye is answered with an empty reply; what comes behind is still answered; then the stream is ended."""
    with t.open() as peer:
        waiting = peer.wait_request() if t.role == "client" else None
        reply = peer.reply(peer.request("Bye", flags=META))
        check(reply.kind == REPLY and not reply.properties and not reply.body, f"Bye was answered with {reply}")
        peer.check_alive()
        if waiting:
            peer.respond(waiting.number, body=b"late")
        peer.end_output()
        peer.wait(lambda: peer.is_ended, "the stream stays open after Bye and its end")
        peer.is_over = True


@case("v1/bye-again", SOURCE + "Closing", versions=1)
def bye_again(t):
    """A second Bye, and one without reply, disturb nobody; other messages of the protocol itself are not known."""
    with t.open() as peer:
        # Before Bye, behind which a client sends none.
        asked = peer.wait_request() if t.role == "client" else None
        peer.check_error(peer.reply(peer.request("Hello", flags=META)), "BLIP", "404")
        check(peer.reply(peer.request("Bye", flags=META)).kind == REPLY, "Bye is refused")
        check(peer.reply(peer.request("Bye", flags=META)).kind == REPLY, "a second Bye is refused")
        peer.request("Bye", flags=META | NO_REPLY)
        peer.check_alive()
        if asked:
            peer.respond(asked.number)


@case("v1/bye-crossing", SOURCE + "Closing; MYNetwork", "client", versions=1)
def bye_crossing(t):
    """Both sides say Bye at once, and both end."""
    with t.open() as peer:
        number = peer.wait_request().number
        peer.respond(number, body=b"hello")
        peer.request("Bye", flags=META)


@case("v1/end-without-bye", SOURCE + "Closing", versions=1)
def end_without_bye(t):
    """A stream that ends without Bye, in a frame or between two, is a lost connection."""
    for cut in (None, 0, 5, 12, 30):
        with t.open() as peer:
            if cut is None and t.role == "client":
                peer.wait_request()
            if cut:
                peer.write(encode(1, REQUEST | MORE, content_of(NOBODY) + bytes(100))[:cut])
            peer.end_output()
            peer.expect_end()


@case("v1/reset", "robustness", versions=1)
def reset(t):
    """A connection that is reset harms nobody else."""
    with t.open() as peer:
        peer.check_alive()
        peer.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        peer.close()
        peer.is_over = True
        if t.role == "client":
            t.end_client(peer, failed=True)


@case("v1/beside-websockets", "the listener's port answers all versions", "server", versions=1)
def beside(t):
    """The same port speaks HTTP with who begins with it, and BLIP 1 with others, at the same time."""
    with t.open() as peer:
        peer.check_alive()
        connection = t.connect()
        connection.write(b"GET /nothing-here-at-all HTTP/1.1\r\nHost: x\r\n\r\n")
        head = connection.read_head(t.timeout)
        check(400 <= head.status < 500, f"plain HTTP is answered with {head.first}")
        connection.close()
        peer.check_alive()


@case("v1/flood", "robustness", "server", versions=1)
def flood(t):
    """A thousand requests at once are answered, each once."""
    t.need("echo")
    with t.open() as peer:
        numbers = [peer.new_number() for _ in range(1000)]
        started = time.monotonic()
        echo = [("Profile", "echo")]
        peer.write(b"".join(b"".join(peer.frames_of(number, REQUEST, echo, b"x" * 50)) for number in numbers))
        for number in numbers:
            check(peer.reply(number).body == b"x" * 50, "a reply is wrong")
        check(time.monotonic() - started < 60, "it took more than a minute")
