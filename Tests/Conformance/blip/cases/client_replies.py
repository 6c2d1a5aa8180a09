"""Replies that a client under test gets, and the requests that it sends."""

import random
import time

from ..peer import check
from ..trial import Skipped, case
from ..wire import COMPRESSED, ERROR, MORE, NO_REPLY, REPLY, URGENT
from .frames import body_of


@case("request/content", "BLIP 3 §Requests", "client")
def content(t):
    """A request holds its profile and body; flags are as asked for."""
    body = body_of(50_000)
    with t.open(body=body) as peer:
        request = peer.wait_request()
        check(request.property("Profile") == "echo", f"{request}")
        check(request.body == body, f"{len(request.body)} bytes of {len(body)} came, not the same")
        check(request.flags & ~MORE == 0, f"flags {request.flags:02x}")


@case("request/flags", "BLIP 3 §Flags", "client")
def flags(t):
    """Compressed and urgent requests are marked so, and inflate."""
    for name, flag in (("compressed", COMPRESSED), ("urgent", URGENT)):
        body = b"compressible " * 5000
        with t.open(body=body, flags=(name,)) as peer:
            request = peer.wait_request()
            check(request.body == body, f"{len(request.body)} bytes of {len(body)} came, not the same")
            t.strict(request.flags & flag, f"a request that is to be {name} has flags {request.flags:02x}")


@case("request/no-reply", "BLIP 3 §NoReply", "client")
def no_reply(t):
    """A request without reply is sent whole, and the client ends without waiting for one."""
    body = body_of(30_000)
    with t.open(body=body, flags=("no-reply",)) as peer:
        request = peer.wait_request()
        check(request.flags & NO_REPLY, f"flags {request.flags:02x}")
        check(request.body == body, "the body came changed")
        peer.wait(lambda: peer.socket.close_code is not None, "it waits for a reply")


@case("request/empty", "BLIP 3 §Requests", "client")
def empty(t):
    """A request without body is whole with its properties."""
    with t.open(body=b"") as peer:
        check(peer.wait_request().body == b"", "a body came")


@case("request/frame-sizes", "BLIP 3 §Sending", "client")
def frame_sizes(t):
    """Frames are filled up to 16,384 bytes while nothing is urgent."""
    with t.open(body=body_of(120_000)) as peer:
        peer.wait_request()
        sizes = [frame.size for frame in peer.incoming[(False, 1)].frames]
        check(max(sizes) <= 32_768, f"a frame of {max(sizes)} bytes")
        t.strict(min(sizes[:-1]) > 8192, f"frames of {min(sizes[:-1])} bytes")


@case("reply/written", "BLIP 3 §Replies", "client")
def written(t):
    """The client gets the reply's body whole, from nothing to megabytes."""
    for size in (0, 1, 16_384, 1_000_000):
        body = body_of(size)
        with t.open() as peer:
            peer.wait_request()
            peer.answered.add(1)
            peer.respond(1, [("Content-Type", "application/octet-stream")], body, sizes=(16_000,))
        check(peer.result[1] == body, f"of {size} bytes, {len(peer.result[1])} were written, not the same")


@case("reply/error-received", "BLIP 3 §Errors", "client")
def error_received(t):
    """An error reply reaches the program, whatever of domain, code and text is missing."""
    for pairs in (
        [("Error-Domain", "HTTP"), ("Error-Code", "409")],
        [("Error-Code", "404")],
        [("Error-Domain", "LiteCore")],
        [("Error-Domain", "X"), ("Error-Code", "no number")],
        [("Error-Domain", "X"), ("Error-Code", "99999999999999999999")],
        [],
    ):
        for body in (b"", b"what happened", b"\xff\xfe not text"):
            with t.open() as peer:
                peer.wait_request()
                peer.answered.add(1)
                peer.expects_failure = True
                peer.respond(1, pairs, body, kind=ERROR)
            check(peer.result[0] != 0, f"an error reply {pairs} passed for a success")


@case("reply/large-error", "BLIP 3 §Errors; go-blip stalls on error replies that need ACKs", "client")
def large_error(t):
    """An error reply of many frames is acknowledged like another and arrives."""
    with t.open() as peer:
        peer.wait_request()
        peer.answered.add(1)
        peer.expects_failure = True
        peer.respond(1, [("Error-Domain", "X"), ("Error-Code", "1")], b"e" * 400_000, kind=ERROR)
    check(peer.result[0] != 0, "an error reply passed for a success")


@case("reply/before-end-of-request", "go-blip accepts it", "client")
def before_end_of_request(t):
    """A reply that comes while the request is still being sent is taken."""
    with t.open(body=body_of(2_000_000), acknowledges=False) as peer:
        peer.drain(0.3)
        check(not peer.requests, "the request is already whole")
        peer.answered.add(1)
        peer.socket.send_all(peer.make(1, REPLY, [], b"early"))
        peer.acknowledges = True
        assembly = peer.incoming[(False, 1)]
        peer.acknowledge(1, assembly.wire, kind=4)
        peer.expects_failure = True
        peer.wait(lambda: peer.requests or peer.socket.close_code is not None, "the request does not go on")
    t.strict(peer.result[0] == 0 and peer.result[1] == b"early", f"status {peer.result[0]}: {peer.result[2].strip()}")


@case("reply/reversed", "BLIP 3 §Replies: in any order", "client")
def reversed_order(t):
    """Replies in reverse order, and with their frames interleaved, each reach their own request."""
    with t.open(many=64, in_flight=32, size=300, wait=False) as peer:
        peer.wait_request(32)
        numbers = list(range(1, 33))
        peer.answered.update(numbers)
        contents = {}
        for number in reversed(numbers):
            contents[number] = peer.codec.content([("n", str(number))], peer.requests[number - 1].body)
            peer.send_frame(number, REPLY | MORE, contents[number][:50])
        random.Random(1).shuffle(numbers)
        for number in numbers:
            peer.send_frame(number, REPLY | MORE, contents[number][50:120])
        for number in numbers:
            peer.send_frame(number, REPLY, contents[number][120:])


@case("reply/twice", "go-blip ignores it, LiteCore dies; libblip: not fatal up to the highest request sent", "client")
def twice(t):
    """A second reply to a request is ignored."""
    with t.open(many=6, in_flight=2, wait=False) as peer:
        peer.wait_request(2)
        peer.answered.add(1)
        peer.respond(1, [], b"first")
        for kind in (REPLY, ERROR):
            content = peer.codec.content([], b"second")
            peer.socket.send(peer.codec.frame(1, kind | MORE, content[:3]))
            peer.socket.send(peer.codec.frame(1, kind, content[3:]))
        peer.wait_request(3)


@case("reply/ahead", "BLIP 3 §Message Numbering", "client")
def ahead(t):
    """A reply to the next request, not sent yet, is fatal."""
    with t.open(many=100, in_flight=2, wait=False) as peer:
        peer.wait_request(2)
        peer.answered.update((1, 2))
        peer.socket.send(peer.codec.frame(3, REPLY, b"\0"))
        peer.expect_fatal(1002)


@case("reply/requests-meanwhile", "BLIP is symmetric", "client")
def requests_meanwhile(t):
    """A client answers requests of the server while its own one waits."""
    with t.open() as peer:
        peer.wait_request()
        for _ in range(20):
            peer.check_alive()
        number = peer.request("echo", [], b"x" * 30_000, URGENT)
        check(peer.reply(number).kind == ERROR, "a client has no echo")


@case("reply/lost", "a lost connection is an error, never an empty reply", "client")
def lost(t):
    """When the connection is lost before the reply or in its middle, the client says so at once."""
    for how in ("before", "middle", "reset", "closed"):
        with t.open() as peer:
            peer.wait_request()
            started = time.monotonic()
            if how == "middle":
                peer.send_frame(1, REPLY | MORE, peer.codec.content([], b"the first half"))
            if how == "closed":
                peer.socket.send_close(1000)
                peer.pump(lambda p=peer: p.socket.close_code is not None)
            if how == "reset":
                peer.socket.reset()
            else:
                peer.socket.close()
            peer.fatal = True
            status, _, errors = peer.result = t.client_result()
        check(status != 0, f"a connection lost ({how}) passed for a success")
        t.strict(errors.strip(), "it failed without a word on standard error")
        t.strict(time.monotonic() - started < 5, "it took its time to notice")


@case("reply/many-answered", "BLIP 3 §Replies", "client")
def many_answered(t):
    """A thousand requests in flight are answered in random order."""
    if not t.settings.many:
        raise Skipped("no command for many requests is given")
    random_ = random.Random(2)
    with t.open(many=1000, in_flight=200, size=64, wait=False) as peer:
        waiting = []
        seen = 0
        while len(peer.answered) < 1000:
            due = min(1000, len(peer.answered) + 150)
            peer.wait_request(due)
            waiting += peer.requests[seen:]
            seen = len(peer.requests)
            random_.shuffle(waiting)
            frames = []
            while waiting:
                message = waiting.pop()
                peer.answered.add(message.number)
                frames += peer.make(message.number, REPLY, [], message.body, random_.choice((0, COMPRESSED)))
            peer.socket.send_all(frames)
        peer.wait(lambda: peer.socket.close_code is not None, "it does not end")
