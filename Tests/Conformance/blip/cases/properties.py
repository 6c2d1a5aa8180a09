"""Properties."""

from ..peer import Failed, check
from ..trial import case
from ..wire import ABBREVIATIONS, ERROR, MORE, NO_REPLY, REPLY, REQUEST, pack, varint

SOURCE = "BLIP 3 §Message Properties"
BAD = SOURCE + "; go-blip: error, LiteCore: fatal; libblip: fails the message"


def echoed(trial, properties, expected=None):
    trial.need("echo")
    with trial.open() as peer:
        reply = peer.reply(peer.request("echo", properties))
        check(reply.kind == REPLY, f"{reply}")
        expected = properties if expected is None else expected
        check(reply.properties == expected, f"{reply.properties} came back, not {expected}")


def malformed(peer, block, size=None, flags=0):
    """Sends a request whose properties are these bytes."""
    number = peer.new_number()
    content = varint(len(block) if size is None else size) + block
    peer.socket.send_all(peer.make(number, REQUEST, content=content, flags=flags))
    return number


BAD_BLOCKS = {
    "an odd number of texts": b"Profile\0echo\0lonely\0",
    "no NUL at the end": b"Profile\0echo",
    "no NUL at all": b"Profile",
    "bad UTF-8": b"Profile\0\xff\xfe\0",
    "overlong UTF-8": b"Profile\0a\xc0\xaf\0",
    "a surrogate": b"Profile\0\xed\xa0\x80\0",
    "cut UTF-8": b"Profile\0\xe2\x82\0",
}


@case("property/kept", SOURCE, "server")
def kept(t):
    """Properties come through as they are: order, empty values, any Unicode, long texts."""
    texts = [("b", "1"), ("a", "2"), ("", "empty key"), ("empty", ""), ("ключ", "значение 🎉")]
    echoed(t, [*texts, ("x" * 3000, "y" * 5000)])


@case("property/duplicates", "LiteCore: the first counts; go-blip: an error", "server")
def duplicates(t):
    """Of several properties with one key the first counts, and none of them is fatal."""
    t.need("error", "echo")
    with t.open() as peer:
        pairs = [("Profile", "conformance/no-such-profile"), ("domain", "T"), ("code", "7"), ("code", "8")]
        reply = peer.reply(peer.request("error", pairs))
        check(reply.kind == ERROR, f"{reply}")
        found = reply.property("Error-Domain"), reply.property("Error-Code")
        t.strict(found == ("T", "7"), f"an error T/7 was asked for, {found} came back")
        reply = peer.reply(peer.request("echo", [("k", "1"), ("k", "2")], b"body"))
        t.strict(reply.kind == REPLY and reply.property("k") == "1", f"an echo of duplicates is {reply} {reply.body!r}")
        peer.check_alive()


@case("property/no-abbreviations", "BLIP 3 has none", "server", 3)
def no_abbreviations(t):
    """In version 3 single control characters are texts like others."""
    echoed(t, [("\x01", "\x02"), ("\x05", "\x1f")])
    with t.open() as peer:
        number = peer.new_number()
        peer.socket.send_all(peer.make(number, REQUEST, [("\x01", "echo")]))
        peer.check_error(peer.reply(number), "BLIP", "404")


@case("property/abbreviations", "BLIP 2 §Message Properties", "server", 2)
def abbreviations(t):
    """In version 2 single control characters stand for common texts; both forms are the same."""
    t.need("echo")
    texts = [text.decode() for text in ABBREVIATIONS]
    with t.open() as peer:
        number = peer.new_number()
        pairs = [(chr(1), "echo"), *((chr(index + 1), chr(index + 1)) for index in range(1, len(texts)))]
        peer.socket.send_all(peer.make(number, REQUEST, pairs))
        reply = peer.reply(number)
        check(reply.kind == REPLY, f"{reply}")
        check(reply.properties == [(text, text) for text in texts[1:]], f"{reply.properties} came back")
        reply = peer.reply(peer.request("echo", [(text, text) for text in texts[1:]]))
        check(reply.properties == [(text, text) for text in texts[1:]], f"{reply.properties} came back")


@case("property/unknown-abbreviation", "BLIP-Cocoa: fatal; go-blip: literal; libblip: fails the message", versions=2)
def unknown_abbreviation(t):
    """An abbreviation that is not defined does no harm to the connection."""
    with t.open() as peer:
        number = malformed(peer, b"\x01\0\x1f\0")
        check(peer.reply_or_end(number).kind == ERROR, "an error was due")
        peer.check_alive()


@case("property/malformed", BAD)
def malformed_ones(t):
    """Malformed properties fail their request with BLIP/400, and nothing else suffers."""
    for name, block in BAD_BLOCKS.items():
        with t.open() as peer:
            try:
                peer.expect_failed_request(malformed(peer, block), "400")
            except Failed as error:
                raise Failed(f"{name}: {error}") from None


@case("property/too-short", BAD)
def too_short(t):
    """A message that ends before its properties do, or has none of their length, fails."""
    with t.open() as peer:
        peer.expect_failed_request(malformed(peer, b"Profile\0x\0", size=11), "400")
        peer.expect_failed_request(malformed(peer, b"", size=1), "400")
        for content in (b"", b"\x80", b"\xff" * 12):
            number = peer.new_number()
            peer.send_frame(number, REQUEST, content)
            peer.expect_failed_request(number, "400")


@case("property/malformed-in-frames", BAD)
def malformed_in_frames(t):
    """A malformed request of several frames fails, but not before its last frame."""
    with t.open() as peer:
        number = peer.new_number()
        peer.send_frame(number, REQUEST | MORE, b"\x03abc")
        for _ in range(3):
            peer.send_frame(number, REQUEST | MORE, b"body")
        peer.silence(0.2)
        peer.send_frame(number, REQUEST, b"end")
        peer.expect_failed_request(number, "400")


@case("property/malformed-no-reply", BAD)
def malformed_no_reply(t):
    """A malformed request that wants no reply is dropped in silence."""
    with t.open() as peer:
        malformed(peer, b"abc", flags=NO_REPLY)
        number = peer.new_number()
        peer.send_frame(number, REQUEST | NO_REPLY, b"\xff" * 12)
        peer.drain(0.2)
        peer.note_end()
        peer.silence(0.05)
        peer.check_alive()


@case("property/at-limit", "LiteCore: 102,400 bytes")
def at_limit(t):
    """Properties of 102,400 bytes over several frames are taken."""
    pairs = [("Profile", "conformance/no-such-profile"), ("k", "")]
    rest = 102_400 - len(pack(pairs))
    pairs[1] = ("k", "v" * rest)
    with t.open() as peer:
        number = peer.new_number()
        peer.socket.send_all(peer.make(number, REQUEST, pairs, b"body", sizes=(16_000,)))
        peer.check_error(peer.reply(number), "BLIP", "404")


@case("property/over-limit", "LiteCore: above 102,400 bytes is fatal; libblip: fails the message")
def over_limit(t):
    """Properties above 102,400 bytes fail their message."""
    pairs = [("Profile", "conformance/no-such-profile"), ("k", "v" * 102_400)]
    with t.open() as peer:
        number = peer.new_number()
        peer.socket.send_all(peer.make(number, REQUEST, pairs, b"body", sizes=(16_000,)))
        reply = peer.reply_or_end(number)
        check(reply.kind == ERROR, "an error was due")
        t.strict(reply.property("Error-Code") in ("400", "413"), f"it was taken: {reply.property('Error-Code')}")
        peer.check_alive()


@case("property/malformed-reply", BAD, "client")
def malformed_reply(t):
    """A reply with malformed properties fails its request, not the connection."""
    for block in (*BAD_BLOCKS.values(), b""):
        with t.open() as peer:
            peer.wait_request()
            peer.answered.add(1)
            peer.expects_failure = True
            content = varint(len(block)) + block if block else b"\x05"
            peer.socket.send_all(peer.make(1, REPLY, content=content))
        check(peer.result[0] != 0, f"the client took {block!r}")
