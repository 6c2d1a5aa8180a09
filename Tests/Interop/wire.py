"""BLIP 3 frames and messages, as a peer of the tests speaks them: small, strict, and independent of the library."""

import struct
import zlib
from dataclasses import dataclass, field

REQUEST, REPLY, ERROR, ACK_REQUEST, ACK_REPLY = 0, 1, 2, 4, 5
COMPRESSED, URGENT, NO_REPLY, MORE = 0x08, 0x10, 0x20, 0x40
SYNC_TAIL = b"\x00\x00\xff\xff"


def varint(number):
    groups = []
    while number > 0x7F:
        groups.append(number & 0x7F | 0x80)
        number >>= 7
    return bytes([*groups, number])


def take_varint(data):
    """The number at the start of data, and what follows it."""
    number = 0
    for index, byte in enumerate(data[:10]):
        number += (byte & 0x7F) << (7 * index)
        if byte < 0x80:
            return number, data[index + 1 :]
    raise AssertionError(f"no varint at the start of {data[:12].hex()}")


def pack_properties(properties):
    text = "".join(f"{key}\0{value}\0" for key, value in properties.items()).encode()
    return varint(len(text)) + text


def unpack_message(content):
    """Properties and body of a whole message."""
    size, rest = take_varint(content)
    block, body = rest[:size], rest[size:]
    assert len(block) == size
    if not block:
        return {}, body
    assert block.endswith(b"\0")
    texts = block[:-1].decode().split("\0")
    assert len(texts) % 2 == 0
    return dict(zip(texts[::2], texts[1::2])), body


@dataclass
class Frame:
    number: int
    kind: int
    flags: int
    content: bytes = b""  # uncompressed, without checksum
    acknowledged: int = 0  # of an ACK
    wire_size: int = 0  # what counts for ACKs: everything behind number and flags

    @property
    def more(self):
        return bool(self.flags & MORE)


class Encoder:
    """One direction's running checksum and compression."""

    def __init__(self):
        self.checksum = 0
        self.deflater = zlib.compressobj(6, zlib.DEFLATED, -15)

    def frame(self, number, flags, content, raw=None):
        """A frame; `raw` replaces the compressed form (which the caller knows to inflate to content)."""
        self.checksum = zlib.crc32(content, self.checksum)
        data = content
        if raw is not None:
            data = raw
        elif flags & COMPRESSED:
            data = self.deflater.compress(content) + self.deflater.flush(zlib.Z_SYNC_FLUSH)
            assert data.endswith(SYNC_TAIL)
            data = data[: -len(SYNC_TAIL)]
        return varint(number) + varint(flags) + data + struct.pack(">I", self.checksum)

    def message(self, number, kind, properties, body=b"", flags=0, chunk=4000):
        """All frames of a message."""
        content = pack_properties(properties) + body
        pieces = [content[start : start + chunk] for start in range(0, len(content), chunk)]
        last = len(pieces) - 1
        return [
            self.frame(number, kind | flags | (MORE if index < last else 0), piece)
            for index, piece in enumerate(pieces)
        ]


def acknowledgement(number, kind, count):
    return varint(number) + varint((ACK_REQUEST if kind == REQUEST else ACK_REPLY) | URGENT | NO_REPLY) + varint(count)


class Decoder:
    def __init__(self):
        self.checksum = 0
        self.inflater = zlib.decompressobj(-15)

    def frame(self, data):
        number, rest = take_varint(data)
        flags, rest = take_varint(rest)
        kind = flags & 7
        if kind in (ACK_REQUEST, ACK_REPLY):
            count, rest = take_varint(rest)
            assert rest == b"", "an ACK carries nothing but its count"
            return Frame(number, kind, flags, acknowledged=count)
        assert kind in (REQUEST, REPLY, ERROR), f"frame type {kind}"
        assert len(rest) >= 4
        content, checksum = rest[:-4], struct.unpack(">I", rest[-4:])[0]
        if flags & COMPRESSED:
            assert content, "an empty compressed frame breaks some peers"
            content = self.inflater.decompress(content + SYNC_TAIL)
        self.checksum = zlib.crc32(content, self.checksum)
        assert self.checksum == checksum, "checksum"
        return Frame(number, kind, flags, content, wire_size=len(rest))


@dataclass
class Message:
    number: int
    kind: int
    flags: int
    properties: dict
    body: bytes
    frames: list = field(default_factory=list)


class Peer:
    """Sends and collects messages over `send(bytes)` and `receive() -> bytes`; acknowledges like deployed peers."""

    ACK_STEP = 50_000

    def __init__(self, send, receive):
        self.send, self.receive = send, receive
        self.encoder, self.decoder = Encoder(), Decoder()
        self.last_request = 0
        self.acknowledges = True
        self.acknowledgements = []
        self._unfinished = {}

    def request(self, properties, body=b"", flags=0, chunk=4000):
        self.last_request += 1
        for frame in self.encoder.message(self.last_request, REQUEST, properties, body, flags, chunk):
            self.send(frame)
        return self.last_request

    def request_in_step(self, properties, body, chunk):
        """A request whose next frame goes out only when an ACK that is due has come."""
        self.last_request += 1
        total = 0
        frames = self.encoder.message(self.last_request, REQUEST, properties, body, 0, chunk)
        for index, frame in enumerate(frames):
            before, total = total, total + len(frame) - 2
            self.send(frame)
            if 0 < index < len(frames) - 1 and before // self.ACK_STEP != total // self.ACK_STEP:
                known = len(self.acknowledgements)
                while len(self.acknowledgements) == known:
                    assert self.take(self.receive()) is None

    def reply(self, number, properties, body=b"", flags=0, kind=REPLY, chunk=4000):
        for frame in self.encoder.message(number, kind, properties, body, flags, chunk):
            self.send(frame)

    def take(self, data):
        """Takes one frame; returns the message it completes, or None."""
        frame = self.decoder.frame(data)
        if frame.kind in (ACK_REQUEST, ACK_REPLY):
            self.acknowledgements.append(frame)
            return None
        key = (frame.kind == REQUEST, frame.number)
        frames = self._unfinished.setdefault(key, [])
        before = sum(earlier.wire_size for earlier in frames)
        frames.append(frame)
        after = before + frame.wire_size
        if frame.more:
            crossed = before // self.ACK_STEP != after // self.ACK_STEP
            if self.acknowledges and len(frames) > 1 and crossed:
                self.send(acknowledgement(frame.number, frame.kind, after))
            return None
        del self._unfinished[key]
        properties, body = unpack_message(b"".join(piece.content for piece in frames))
        return Message(frame.number, frame.kind, frames[0].flags & ~MORE, properties, body, frames)

    def message(self):
        """Receives until a message is complete."""
        while True:
            message = self.take(self.receive())
            if message is not None:
                return message

    def call(self, properties, body=b"", flags=0, chunk=4000):
        number = self.request(properties, body, flags, chunk)
        reply = self.message()
        assert (reply.number, reply.kind) == (number, REPLY), reply
        return reply
