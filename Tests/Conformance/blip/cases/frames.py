"""How messages may be cut into frames, and frames into WebSocket and TCP pieces."""

import random

from ..peer import check
from ..trial import case
from ..websocket import PING
from ..wire import COMPRESSED, MORE, NO_REPLY, REPLY, REQUEST, URGENT

NOBODY = [("Profile", "conformance/no-such-profile")]
SOURCE = "BLIP 3 §Frames"


def body_of(size, seed=1):
    return random.Random(seed).randbytes(size)


def deliver(trial, send, body, flags=0):
    """A body reaches the implementation under test whole: `send(peer, number, kind, properties)` sends it; a server
    echoes it, a client writes it out."""
    if trial.role == "server":
        trial.need("echo")
        with trial.open() as peer:
            number = peer.new_number()
            send(peer, number, REQUEST, [("Profile", "echo"), ("kept", "yes")])
            reply = peer.reply(number, trial.timeout + 10)
            check(reply.kind == REPLY, f"the echo answers with {reply} {reply.body[:100]!r}")
            check(reply.body == body, f"of {len(body)} bytes, {len(reply.body)} came back, not the same")
            check(reply.properties == [("kept", "yes")], f"properties {reply.properties} came back")
            if flags is not None and body:
                trial.strict(reply.flags & COMPRESSED == flags & COMPRESSED, "Compressed did not come back")
            peer.check_alive()
        return
    with trial.open() as peer:
        peer.wait_request()
        peer.answered.add(1)
        send(peer, 1, REPLY, [("kept", "yes")])
    check(peer.result[1] == body, f"of {len(body)} bytes, {len(peer.result[1])} were written, not the same")


@case("frame/smallest", SOURCE)
def smallest(t):
    """The smallest request, without properties and body, is answered with 404: it has no profile."""
    with t.open() as peer:
        number = peer.new_number()
        peer.send_frame(number, REQUEST, b"\0")
        peer.check_error(peer.reply(number), "BLIP", "404")


@case("frame/one-byte", SOURCE)
def one_byte(t):
    """Messages may come in frames of one byte, the length of the properties included."""
    body = body_of(300)

    def send(peer, number, kind, properties):
        padded = [*properties[:1], ("pad", "p" * 200), *properties[1:]] if kind == REPLY else properties
        peer.socket.send_all(peer.make(number, kind, padded, body, sizes=(1,)))

    deliver(t, send, body)


@case("frame/large", "go-blip takes up to 32,768 bytes, LiteCore 1 MiB")
def large(t):
    """Frames of 32,768 bytes and more are taken."""
    body = body_of(300_000)

    def send(peer, number, kind, properties):
        peer.socket.send_all(peer.make(number, kind, properties, body, sizes=(32_700, 100_000, 16_384)))

    deliver(t, send, body)


@case("frame/empty-last", "go-blip ends messages whose length is a multiple of its frame with an empty frame")
def empty_last(t):
    """A message may end with an empty frame."""
    body = body_of(5000)

    def send(peer, number, kind, properties):
        content = peer.codec.content(properties, body)
        peer.send_frame(number, kind | MORE, content[:2000])
        peer.send_frame(number, kind | MORE, content[2000:])
        peer.send_frame(number, kind)

    deliver(t, send, body)


@case("frame/empty-between", SOURCE)
def empty_between(t):
    """Empty frames in the middle, and first, change nothing."""
    body = body_of(3000)

    def send(peer, number, kind, properties):
        content = peer.codec.content(properties, body)
        for piece in (b"", content[:1], b"", b"", content[1:1500], b"", content[1500:]):
            peer.send_frame(number, kind | MORE, piece)
        peer.send_frame(number, kind)

    deliver(t, send, body)


@case("frame/no-body", SOURCE)
def no_body(t):
    """A message without body arrives, in one frame and in two."""
    deliver(t, lambda peer, number, kind, p: peer.socket.send_all(peer.make(number, kind, p)), b"")
    deliver(t, lambda peer, number, kind, p: peer.socket.send_all(peer.make(number, kind, p, sizes=(5,))), b"")


@case("frame/flags-of-first", SOURCE)
def flags_of_first(t):
    """What later frames say of Urgent and NoReply does not matter: the first frame counts."""
    body = body_of(2000)

    def send(peer, number, kind, properties):
        content = peer.codec.content(properties, body)
        peer.send_frame(number, kind | MORE, content[:500])
        peer.send_frame(number, kind | URGENT | MORE, content[500:1000])
        peer.send_frame(number, kind | URGENT | NO_REPLY, content[1000:])

    deliver(t, send, body)


@case("frame/properties-cut", "go-blip splits anywhere")
def properties_cut(t):
    """Properties may be cut at every place."""
    if t.role == "server":
        with t.open() as peer:
            content = peer.codec.content(NOBODY)
            for place in range(1, len(content)):
                number = peer.new_number()
                peer.send_frame(number, REQUEST | MORE, content[:place])
                peer.send_frame(number, REQUEST, content[place:])
                peer.check_error(peer.reply(number), "BLIP", "404")
    body = body_of(100)

    def send(peer, number, kind, properties):
        peer.socket.send_all(peer.make(number, kind, properties, body, sizes=(3, 2, 7)))

    deliver(t, send, body)


@case("websocket/fragments", "RFC 6455 §5.4: intermediaries may cut as they like")
def fragments(t):
    """A frame may come as any WebSocket fragments, also empty ones, with pings in between."""
    body = body_of(4000)
    for sizes in ((1, 5, 1000), (0, 7, 0, 0, 300), (3000,)):

        def send(peer, number, kind, properties, sizes=sizes):
            for frame in peer.make(number, kind, properties, body, sizes=(1500,)):
                # A last size of 0 would never end.
                peer.socket.write(peer.socket.fragments(frame, (*sizes, 400), ping=True))

        deliver(t, send, body)


@case("websocket/segments", "TCP has no borders")
def segments(t):
    """Frames may come in TCP segments of one byte, or many in one."""
    body = body_of(1500)

    def slowly(peer, number, kind, properties):
        frames = peer.make(number, kind, properties, body, sizes=(400,))
        peer.socket.send_all(frames, segment=1)

    def at_once(peer, number, kind, properties):
        peer.socket.send_all(peer.make(number, kind, properties, body, sizes=(9,)))

    deliver(t, slowly, body)
    deliver(t, at_once, body)


@case("websocket/ping", "RFC 6455 §5.5.2")
def ping(t):
    """A ping is answered with its payload, also in the middle of a message and without one; pongs are ignored."""
    with t.open() as peer:
        number = peer.new_number()
        content = peer.codec.content(NOBODY)
        peer.send_frame(number, REQUEST | MORE, content[:5])
        for payload in (b"", b"payload", bytes(range(125))):
            peer.socket.pongs.clear()
            peer.socket.send(payload, PING)
            peer.wait(lambda p=payload: p in peer.socket.pongs, f"no pong for {len(payload)} bytes")
        peer.socket.send(b"nobody asked", 10)
        peer.send_frame(number, REQUEST, content[5:])
        peer.check_error(peer.reply(number), "BLIP", "404")


@case("frame/sizes-sent", "BLIP 3 §Sending; go-blip takes 32,768 bytes", "server")
def sizes_sent(t):
    """Frames of a large reply are at most 16,384 bytes, compressed or not, and filled when nothing is urgent."""
    t.need("echo")
    body = body_of(120_000)
    for flags in (0, COMPRESSED):
        with t.open() as peer:
            reply = peer.reply(peer.request("echo", [], body, flags, sizes=(16_000,)))
            check(reply.body == body, "the body came back changed")
            frames = peer.incoming[(True, 1)].frames
            check(max(frame.size for frame in frames) <= 32_768, "a frame is above 32,768 bytes")
            t.strict(min(frame.size for frame in frames[:-1]) > 8192, "frames are not filled")


@case("frame/random", "all of the above")
def random_shapes(t):
    """Bodies in random frames, fragments and segments, with random flags, arrive."""
    for seed in range(4):
        random_ = random.Random(seed)
        body = b"".join(
            random_.choice((random_.randbytes(200), b"compressible " * 30)) for _ in range(random_.randrange(1, 200))
        )

        def send(peer, number, kind, properties, random_=random_, body=body):
            flags = COMPRESSED if peer.version == 2 and random_.random() < 0.5 else 0
            content = peer.codec.content(properties, body, flags)
            start = 0
            while True:
                size = random_.choice((0, 1, 2, 100, 4086, 16_374))
                piece, start = content[start : start + size], start + size
                more = start < len(content) or random_.random() < 0.2
                own = flags | (COMPRESSED if peer.version == 3 and piece and random_.random() < 0.5 else 0)
                frame = peer.frame(number, kind | own | (MORE if more else 0), piece)
                if random_.random() < 0.3:
                    sizes = [random_.randrange(0, 3000) for _ in range(8)] + [5000]
                    data = peer.socket.fragments(frame, sizes, ping=random_.random() < 0.5)
                else:
                    data = peer.socket.encode(2, frame)
                peer.socket.write(data, random_.choice((None, 1000, 17)) if len(data) < 6000 else None)
                if not more:
                    return

        deliver(t, send, body, flags=None)
