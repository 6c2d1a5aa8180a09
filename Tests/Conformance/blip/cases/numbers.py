"""Message numbers."""

from ..peer import check
from ..trial import case
from ..wire import ERROR, MORE, REPLY, REQUEST

SOURCE = "BLIP 3 §Message Numbering; peers close"


def raw_request(peer, number):
    content = peer.codec.content([("Profile", "conformance/no-such-profile")])
    peer.socket.send(peer.codec.frame(number, REQUEST, content))


@case("number/skipped", SOURCE)
def skipped(t):
    """A request number that skips one is fatal, at the start and later."""
    for good in (0, 2):
        with t.open() as peer:
            for _ in range(good):
                peer.check_alive()
            raw_request(peer, peer.next_number + 1)
            peer.expect_fatal(1002)


@case("number/zero", SOURCE)
def zero(t):
    """Request number zero is fatal: numbers begin with 1."""
    with t.open() as peer:
        raw_request(peer, 0)
        peer.expect_fatal(1002)


@case("number/again", SOURCE)
def again(t):
    """The number of a finished request is fatal when it comes again."""
    for number in (1, 2):
        with t.open() as peer:
            peer.check_alive()
            peer.check_alive()
            raw_request(peer, number)
            peer.expect_fatal(1002)


@case("number/continued-after-end", SOURCE)
def continued_after_end(t):
    """A frame that continues a finished request is fatal."""
    with t.open() as peer:
        peer.check_alive()
        peer.socket.send(peer.codec.frame(1, REQUEST | MORE, b"x"))
        peer.expect_fatal(1002)


@case("number/reply-to-nothing", SOURCE)
def reply_to_nothing(t):
    """A reply to a request that was never sent is fatal."""
    for kind in (REPLY, ERROR):
        for number in (0, 2, 1 << 40):
            with t.open() as peer:
                peer.socket.send(peer.codec.frame(number, kind, b"\0"))
                peer.expect_fatal(1002)


@case("number/independent-directions", "BLIP 3 §Message Numbering")
def independent_directions(t):
    """Each side counts for itself, and begins with 1."""
    with t.open() as peer:
        for _ in range(5):
            peer.check_alive()
        if t.role == "client":
            check(peer.requests[0].number == 1, f"its first request has number {peer.requests[0].number}")


@case("number/interleaved", "BLIP 3 §Frames")
def interleaved(t):
    """Messages come with their frames interleaved, first frames in order, ends in any order."""
    with t.open() as peer:
        t_content = peer.codec.content([("Profile", "conformance/no-such-profile")], b"b" * 3000)
        numbers = []
        for _ in range(8):
            number = peer.new_number()
            numbers.append(number)
            peer.send_frame(number, REQUEST | MORE, t_content[:100])
        for start in range(100, 2000, 500):
            for number in numbers:
                peer.send_frame(number, REQUEST | MORE, t_content[start : start + 500])
        peer.silence(0.1)
        for number in reversed(numbers):
            peer.send_frame(number, REQUEST, t_content[2100:])
        for number in numbers:
            peer.check_error(peer.reply(number), "BLIP", "404")


@case("number/rising", "BLIP 3 §Message Numbering; LiteCore, go-blip: others are fatal", "client")
def rising(t):
    """Many requests in flight have strictly rising numbers in the order of their first frames."""
    with t.open(many=300, in_flight=100, size=20_000, wait=False) as peer:
        peer.wait_request(100)
        check(peer.seen_request >= 100, f"{peer.seen_request} requests came")
