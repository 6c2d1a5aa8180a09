"""Checksums of version 3."""

import struct
import zlib

from ..trial import case
from ..wire import ACK_REPLY, COMPRESSED, MORE, REQUEST

SOURCE = "BLIP 3 §Checksum"


def with_checksum(frame, checksum):
    return frame[:-4] + struct.pack(">I", checksum)


@case("checksum/wrong", SOURCE, versions=3)
def wrong(t):
    """A wrong checksum is fatal, in the first frame and in later ones."""
    for good in (0, 3):
        with t.open() as peer:
            for _ in range(good):
                peer.check_alive()
            content = peer.codec.content([("Profile", "conformance/no-such-profile")])
            frame = peer.frame(peer.new_number(), REQUEST, content)
            peer.socket.send(with_checksum(frame, peer.codec.sent_checksum ^ 1))
            peer.expect_fatal(1002)


@case("checksum/missing", SOURCE, versions=3)
def missing(t):
    """A frame without a whole checksum is fatal."""
    for size in range(4):
        with t.open() as peer:
            peer.socket.send(b"\x01\x00" + bytes(size))
            peer.expect_fatal(1002)


@case("checksum/running", SOURCE, versions=3)
def running(t):
    """The checksum runs over the whole connection: that of the frame alone is wrong from the second on."""
    with t.open() as peer:
        peer.check_alive()
        content = peer.codec.content([("Profile", "conformance/no-such-profile")])
        frame = peer.frame(peer.new_number(), REQUEST, content)
        peer.socket.send(with_checksum(frame, zlib.crc32(content)))
        peer.expect_fatal(1002)


@case("checksum/of-uncompressed", SOURCE, versions=3)
def of_uncompressed(t):
    """It covers uncompressed bytes: that of the compressed ones is wrong."""
    with t.open() as peer:
        content = peer.codec.content([("Profile", "conformance/no-such-profile")], b"x" * 500)
        frame = peer.frame(peer.new_number(), REQUEST | COMPRESSED, content)
        peer.socket.send(with_checksum(frame, zlib.crc32(frame[2:-4])))
        peer.expect_fatal(1002)


@case("checksum/in-continuation", SOURCE, versions=3)
def in_continuation(t):
    """A wrong checksum in the middle of a message is fatal at once."""
    with t.open() as peer:
        number = peer.new_number()
        content = peer.codec.content([("Profile", "conformance/no-such-profile")])
        peer.send_frame(number, REQUEST | MORE, content)
        frame = peer.frame(number, REQUEST | MORE, b"more")
        peer.socket.send(with_checksum(frame, peer.codec.sent_checksum ^ 0x80000000))
        peer.expect_fatal(1002)


@case("checksum/untouched-by-others", SOURCE + "; ACKs carry none", versions=3)
def untouched_by_others(t):
    """Acknowledgements and WebSocket control frames do not count."""
    with t.open() as peer:
        peer.check_alive()
        peer.acknowledge(1, 100)
        peer.acknowledge(99, 1, ACK_REPLY)
        peer.socket.send(b"ping", 9)
        peer.check_alive()
