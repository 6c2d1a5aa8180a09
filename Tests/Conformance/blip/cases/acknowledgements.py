"""Acknowledgements that the implementation under test sends and gets."""

from ..peer import ACK_INTERVAL, Failed, check
from ..trial import case
from ..wire import (
    ACK_REPLY,
    ACK_REQUEST,
    COMPRESSED,
    MORE,
    NO_REPLY,
    REPLY,
    REQUEST,
    URGENT,
    varint,
)
from .frames import body_of

SOURCE = "BLIP 3 §Flow Control: counted behind the header, with checksums; BLIP-Cocoa closes on wrong counts"
NOBODY = [("Profile", "conformance/no-such-profile")]


def measure(trial, content_of, sizes, flags=0):
    """Sends a large message, waits for each acknowledgement when it is due, and compares."""
    with trial.open() as peer:
        kind = REQUEST if trial.role == "server" else REPLY
        if kind == REPLY:
            peer.wait_request()
            peer.answered.add(1)
        number = peer.new_number() if kind == REQUEST else 1
        content = content_of(peer)
        expected = []
        index = 0
        sent = None
        for piece, more in peer.pieces(content, sizes):
            own = flags
            if flags == "mixed":
                own = COMPRESSED if index % 2 else 0
            peer.send_frame(number, kind | own | (MORE if more else 0), piece)
            sent = peer.sent[(kind != REQUEST, number)]
            before, after = sent.ends[-2:]
            if more and index > 0 and before // ACK_INTERVAL < after // ACK_INTERVAL:
                expected.append(after)
                peer.pump(lambda s=sent, a=after: a in s.acknowledgements, 2)
            if more and after - max(sent.acknowledgements, default=0) > 200_000:
                raise Failed(f"after {after} bytes it has acknowledged {sent.acknowledgements}")
            index += 1
        if kind == REQUEST:
            peer.reply(number)
        peer.drain(0.2)
        found = sent.acknowledgements
        check(found, "nothing was acknowledged")
        trial.strict(found == expected, f"it acknowledged {found}, due was {expected}")


@case("ack/counts", SOURCE)
def counts(t):
    """Every crossing of a multiple of 50,000 bytes is acknowledged with the exact count, but the last frame never."""
    body = body_of(420_000)
    for sizes in ((4000,), (16_370,), (30_000, 1, 999)):
        measure(t, lambda peer: peer.codec.content(NOBODY, body), sizes)


@case("ack/last-frame", SOURCE)
def last_frame(t):
    """The last frame is not acknowledged, even where it crosses the multiple; nor is the first."""
    with t.open() as peer:
        kind, number = (REQUEST, peer.new_number()) if t.role == "server" else (REPLY, 1)
        if kind == REPLY:
            peer.wait_request()
            peer.answered.add(1)
        content = peer.codec.content(NOBODY, body_of(170_000))
        peer.send_frame(number, kind | MORE, content[:60_000])
        sent = peer.sent[(kind != REQUEST, number)]
        peer.drain(0.2)
        t.strict(not sent.acknowledgements, f"the first frame was acknowledged: {sent.acknowledgements}")
        peer.send_frame(number, kind | MORE, content[60_000:60_010])
        peer.send_frame(number, kind, content[60_010:])
        if kind == REQUEST:
            peer.reply(number)
        peer.drain(0.2)
        t.strict(sent.ends[-1] not in sent.acknowledgements, "the last frame was acknowledged")


@case("ack/compressed", SOURCE + ": compressed size", versions=3)
def compressed(t):
    """Of compressed frames the compressed size counts, also when only some are."""
    body = body_of(300_000)
    measure(t, lambda peer: peer.codec.content(NOBODY, body), (9000,), COMPRESSED)
    measure(t, lambda peer: peer.codec.content(NOBODY, body), (9000,), "mixed")


@case("ack/tiny-frames", SOURCE)
def tiny_frames(t):
    """Checksums of tiny frames count, in version 3: they are most of the bytes."""
    body = body_of(12_000)
    if t.version == 2:
        body = body_of(60_000)
    measure(t, lambda peer: peer.codec.content(NOBODY, body), (60, 1) if t.version == 3 else (60, 7))


@case("ack/gzip", "BLIP 2 §Flow Control: bytes as transmitted", versions=2)
def gzip_counts(t):
    """In version 2 the bytes of the gzip stream count."""
    body = body_of(300_000)
    measure(t, lambda peer: peer.codec.content(NOBODY, body, COMPRESSED), (9000,), COMPRESSED)


@case("ack/frame", "go-blip, LiteCore, BLIP-Cocoa: 0x34 and 0x35")
def ack_frame(t):
    """An acknowledgement is number, flags 0x34 or 0x35 and count, without checksum."""
    with t.open() as peer:
        kind, number = (REQUEST, peer.new_number()) if t.role == "server" else (REPLY, 1)
        if kind == REPLY:
            peer.wait_request()
            peer.answered.add(1)
        frames = peer.make(number, kind, NOBODY, body_of(120_000), sizes=(10_000,))
        peer.socket.send_all(frames[:-1])
        wanted = ACK_REQUEST if kind == REQUEST else ACK_REPLY
        peer.wait(lambda: [f for f in peer.frames if f.kind == wanted], "no acknowledgement came")
        frame = next(frame for frame in peer.frames if frame.kind == wanted)
        size = len(varint(number)) + 1 + len(varint(frame.count))
        check(frame.size == size, f"an acknowledgement of {frame.size} bytes, not {size}")
        t.strict(frame.flags == wanted | URGENT | NO_REPLY, f"flags {frame.flags:02x}")
        peer.socket.send(frames[-1])
        if kind == REQUEST:
            peer.reply(number)


@case("ack/of-others", "LiteCore acknowledges last frames, too; go-blip and LiteCore ignore the unknown")
def of_others(t):
    """Acknowledgements of unknown or finished messages, of zero, or of far too much, are ignored."""
    with t.open() as peer:
        peer.check_alive()
        for kind in (ACK_REQUEST, ACK_REPLY):
            for number in (0, 1, 2, 77, (1 << 64) - 1):
                for count in (0, 1, 50_000, (1 << 64) - 1):
                    peer.acknowledge(number, count, kind)
        peer.acknowledge(1, 5, ACK_REPLY, flags=0)
        peer.acknowledge(1, 5, ACK_REPLY, flags=COMPRESSED | URGENT)
        peer.check_alive()


@case("ack/coalesced", SOURCE)
def coalesced(t):
    """When a large message comes at once, acknowledgements still rise and end close to its size."""
    with t.open() as peer:
        kind, number = (REQUEST, peer.new_number()) if t.role == "server" else (REPLY, 1)
        if kind == REPLY:
            peer.wait_request()
            peer.answered.add(1)
        content = peer.codec.content(NOBODY, body_of(1_000_000))
        frames = peer.make(number, kind, sizes=(16_000,), content=content)
        # Far more than a window in one go: a peer that does not pause.
        peer.socket.send_all(frames[:-1])
        sent = peer.sent[(kind != REQUEST, number)]
        peer.wait(
            lambda: max(sent.acknowledgements, default=0) > sent.ends[-1] - 100_000,
            f"of {sent.ends[-1]} bytes, {sent.acknowledgements[-1:]} were acknowledged",
        )
        peer.socket.send(frames[-1])
        if kind == REQUEST:
            peer.reply(number)
