"""What a server under test answers, and when."""

import random

from ..peer import check
from ..trial import case
from ..wire import COMPRESSED, ERROR, META, MORE, NO_REPLY, REPLY, REQUEST, URGENT

NOBODY = "conformance/no-such-profile"
# LiteCore finds out about old peers by these texts.
TEXTS = ("No handler for BLIP request", "No handler was found", "no handler for message")


@case("reply/no-handler", "go-blip, LiteCore: BLIP/404")
def no_handler(t):
    """A request that nobody handles is answered with ERR BLIP/404 and the usual text."""
    with t.open() as peer:
        for flags in (0, URGENT, COMPRESSED):
            reply = peer.reply(peer.request(NOBODY, [("a", "b")], b"body" * 50, flags))
            peer.check_error(reply, "BLIP", "404")
            t.strict(reply.body.decode() in TEXTS, f"the text is {reply.body!r}")
        number = peer.request(None, [("a", "b")], b"body")
        peer.check_error(peer.reply(number), "BLIP", "404")


@case("reply/not-early", "LiteCore dies of a reply before the last frame of its request")
def not_early(t):
    """No reply begins before the request's last frame, not even of an error."""
    with t.open() as peer:
        number = peer.new_number()
        content = peer.codec.content([("Profile", NOBODY)], b"x" * 20_000)
        for start in range(0, 20_000, 4000):
            peer.send_frame(number, REQUEST | MORE, content[start : start + 4000])
        peer.silence(0.3)
        peer.check_alive()
        peer.silence(0.1)
        peer.send_frame(number, REQUEST, content[20_000:])
        peer.check_error(peer.reply(number), "BLIP", "404")


@case("reply/not-early-echo", "LiteCore dies of a reply before the last frame of its request", "server")
def not_early_echo(t):
    """Neither does the reply of a handler that gets its body as it comes."""
    t.need("echo")
    body = random.Random(3).randbytes(200_000)
    with t.open() as peer:
        number = peer.new_number()
        content = peer.codec.content([("Profile", "echo")], body)
        for piece, more in peer.pieces(content, (15_000,)):
            if not more:
                peer.silence(0.2)
            peer.send_frame(number, REQUEST | (MORE if more else 0), piece)
        check(peer.reply(number).body == body, "the body came back changed")


@case("reply/none-wanted", "BLIP 3 §NoReply")
def none_wanted(t):
    """A request with NoReply is never answered: handled or not, good or bad, small or large."""
    with t.open() as peer:
        for profile in (NOBODY, "echo", "error", "sink", "source", "sleep"):
            peer.request(profile, [("size", "5"), ("ms", "1"), ("code", "7")], b"body", NO_REPLY)
            peer.request(profile, [], b"body" * 4000, NO_REPLY | COMPRESSED)
        peer.silence(0.3)
        peer.check_alive()


@case("reply/echo", "BLIP 3 §Replies", "server")
def echo(t):
    """A reply has its request's number, the type RPY, and inherits Urgent; Compressed on request."""
    t.need("echo")
    with t.open() as peer:
        for flags in (0, URGENT, COMPRESSED, URGENT | COMPRESSED):
            number = peer.request("echo", [("k", "v")], b"body" * 100, flags)
            reply = peer.reply(number)
            check(reply.kind == REPLY and reply.number == number, f"{reply}")
            check(reply.body == b"body" * 100 and reply.properties == [("k", "v")], f"{reply}")
            t.strict(reply.flags & 0xF8 == flags, f"flags {reply.flags:02x} for a request with {flags:02x}")


@case("reply/error", "BLIP 3 §Errors", "server")
def error(t):
    """An error reply has the type ERR, domain and code as properties, the text as body."""
    t.need("error")
    with t.open() as peer:
        asked = [("domain", "Test"), ("code", "-7"), ("text", "it failed ⚠")]
        reply = peer.reply(peer.request("error", asked))
        peer.check_error(reply, "Test", "-7")
        check(reply.body.decode() == "it failed ⚠", f"the text is {reply.body!r}")


@case("reply/any-order", "BLIP 3 §Replies: in any order", "server")
def any_order(t):
    """Replies come as they are ready: a slow request does not hold up those behind it."""
    t.need("sleep", "echo")
    with t.open() as peer:
        slow = peer.request("sleep", [("ms", "400")])
        middle = peer.request("sleep", [("ms", "200")])
        fast = peer.request("echo", [], b"fast")
        for number in (fast, middle, slow):
            peer.reply(number)
        ends = [number for is_reply, number in peer.order if is_reply]
        check(ends == [fast, middle, slow], f"the replies came in the order {ends}")


@case("reply/many", "BLIP 3 §Replies", "server")
def many(t):
    """Hundreds of requests of different sizes at once get each their own reply."""
    t.need("echo")
    random_ = random.Random(5)
    with t.open() as peer:
        bodies = {}
        frames = []
        for _ in range(300):
            number = peer.new_number()
            bodies[number] = random_.randbytes(random_.choice((0, 1, 50, 4090, 9000)))
            flags = random_.choice((0, 0, URGENT, COMPRESSED))
            frames.append(peer.make(number, REQUEST, [("Profile", "echo"), ("n", str(number))], bodies[number], flags))
        peer.socket.send_all([frame for message in frames for frame in message])
        for number, body in bodies.items():
            reply = peer.reply(number, 20)
            check(reply.body == body and reply.property("n") == str(number), f"{reply} has another's content")


@case("reply/sink", "streams", "server")
def sink(t):
    """A large body is consumed as it comes, and counted."""
    t.need("sink")
    with t.open() as peer:
        number = peer.new_number()
        content = peer.codec.content([("Profile", "sink")], bytes(3_000_000))
        for piece, more in peer.pieces(content, (16_000,)):
            peer.send_frame(number, REQUEST | (MORE if more else 0), piece)
            if more:
                peer.wait_for_window((False, number))
        check(peer.reply(number).body == b"3000000", "the count is wrong")


@case("reply/meta", "v2: go-blip dispatches meta requests by profile, BLIP-Cocoa answers 404", versions=2)
def meta(t):
    """A meta request of version 2, such as Bye, is answered, and the connection goes on."""
    with t.open() as peer:
        for profile in ("Bye", "Hi", NOBODY):
            number = peer.request(profile, flags=META)
            reply = peer.reply(number)
            check(reply.kind in (REPLY, ERROR), f"{reply}")
        peer.check_alive()
