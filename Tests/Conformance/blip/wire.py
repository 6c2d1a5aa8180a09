"""Frames and messages of BLIP 2 (WebSocket subprotocol BLIP) and BLIP 3 (BLIP_3), as strict as they can be read."""

import struct
import zlib
from dataclasses import dataclass, field

REQUEST, REPLY, ERROR, ACK_REQUEST, ACK_REPLY = 0, 1, 2, 4, 5
COMPRESSED, URGENT, NO_REPLY, MORE, META = 0x08, 0x10, 0x20, 0x40, 0x80
KIND_NAMES = {0: "MSG", 1: "RPY", 2: "ERR", 4: "ACKMSG", 5: "ACKRPY"}

# A deflate sync flush ends with these bytes; they are not transmitted (BLIP 3 §"Compression").
TRAILER = b"\x00\x00\xff\xff"

# BLIP 2 §"Message Properties": the text of control character 1 is the first, and so on.
ABBREVIATIONS = [
    b"Profile", b"Error-Code", b"Error-Domain", b"Content-Type", b"application/json", b"application/octet-stream",
    b"text/plain; charset=UTF-8", b"text/xml", b"Accept", b"Cache-Control", b"must-revalidate", b"If-Match",
    b"If-None-Match", b"Location",
]  # fmt: skip


class WireError(Exception):
    """The peer under test has sent what is not BLIP."""


def varint(number):
    groups = []
    while number > 0x7F:
        groups.append(number & 0x7F | 0x80)
        number >>= 7
    return bytes([*groups, number])


def read_varint(data, start=0):
    """The number at a place of data, and the place behind it."""
    number = 0
    for index in range(start, min(len(data), start + 10)):
        number |= (data[index] & 0x7F) << (7 * (index - start))
        if data[index] < 0x80:
            if number >> 64:
                break
            return number, index + 1
    raise WireError(f"no varint in {bytes(data[start : start + 11]).hex() or 'nothing'}")


def pack(properties):
    """Encoded properties; keys and values are texts or raw bytes."""
    packed = b""
    for pair in properties:
        for text in pair:
            packed += (text.encode() if isinstance(text, str) else text) + b"\0"
    return packed


def unpack(block, version):
    if not block:
        return []
    if block[-1] != 0:
        raise WireError("properties that do not end with NUL")
    texts = block[:-1].split(b"\0")
    if len(texts) % 2:
        raise WireError("an odd number of property texts")
    if version == 2:
        for index, text in enumerate(texts):
            if len(text) == 1 and text[0] < 0x20:
                if not 1 <= text[0] <= len(ABBREVIATIONS):
                    raise WireError(f"the undefined abbreviation {text[0]}")
                texts[index] = ABBREVIATIONS[text[0] - 1]
    try:
        texts = [text.decode() for text in texts]
    except UnicodeDecodeError as error:
        raise WireError(f"properties that are not UTF-8: {error}") from None
    return list(zip(texts[::2], texts[1::2]))


def gzip(data, level=6, window=31):
    compressor = zlib.compressobj(level, zlib.DEFLATED, window)
    return compressor.compress(data) + compressor.flush()


@dataclass
class Frame:
    """A frame that was received."""

    number: int
    kind: int
    flags: int
    # Uncompressed in version 3, as transmitted in version 2; without the checksum.
    content: bytes = b""
    # As transmitted, without header and checksum.
    body_size: int = 0
    # What acknowledgements count: everything behind the header.
    wire_size: int = 0
    # All of it.
    size: int = 0
    # Of an acknowledgement.
    count: int = 0

    @property
    def more(self):
        return bool(self.flags & MORE)

    def __str__(self):
        name = KIND_NAMES.get(self.kind, f"type {self.kind}")
        return f"{name} #{self.number} flags {self.flags:02x}, {self.size} bytes"


@dataclass
class Message:
    number: int
    kind: int
    flags: int
    properties: list = field(default_factory=list)
    body: bytes = b""

    def property(self, key):
        return next((value for name, value in self.properties if name == key), None)

    def __str__(self):
        name = KIND_NAMES[self.kind]
        return f"{name} #{self.number} flags {self.flags:02x} {self.properties} and {len(self.body)} bytes"


class Codec:
    """Both directions of one connection."""

    def __init__(self, version, level=6):
        self.version = version
        self.sent_checksum = self.received_checksum = 0
        self.deflater = zlib.compressobj(level, zlib.DEFLATED, -15)
        self.inflater = zlib.decompressobj(-15)

    # Sending.

    def content(self, properties, body=b"", flags=0):
        """The bytes of a message, to be cut into frames."""
        block = pack(properties)
        if self.version == 2 and flags & COMPRESSED and body:
            body = gzip(body)
        return varint(len(block)) + block + body

    def deflate(self, content, flush=zlib.Z_SYNC_FLUSH):
        data = self.deflater.compress(content) + self.deflater.flush(flush)
        assert data.endswith(TRAILER)
        return data[:-4]

    def frame(self, number, flags, content=b"", wire=None):
        """One frame with a type in its flags. `wire` stands in for the transmitted form of the content."""
        header = varint(number) + varint(flags)
        if self.version == 2:
            return header + (content if wire is None else wire)
        if wire is None:
            wire = self.deflate(content) if flags & COMPRESSED else content
        self.sent_checksum = zlib.crc32(content, self.sent_checksum)
        return header + wire + struct.pack(">I", self.sent_checksum)

    # Receiving.

    def read(self, data):
        number, place = read_varint(data)
        flags, place = read_varint(data, place)
        kind = flags & 7
        frame = Frame(number, kind, flags, size=len(data))
        if kind in (ACK_REQUEST, ACK_REPLY):
            frame.count, end = read_varint(data, place)
            if end != len(data):
                raise WireError(f"an acknowledgement with more than a count: {data.hex()}")
            return frame
        frame.wire_size = len(data) - place
        body = data[place:]
        if self.version == 3:
            if len(body) < 4:
                raise WireError(f"a frame without checksum: {data.hex()}")
            body, checksum = body[:-4], struct.unpack(">I", body[-4:])[0]
            frame.body_size = len(body)
            if flags & COMPRESSED and body:
                try:
                    body = self.inflater.decompress(body + TRAILER)
                except zlib.error as error:
                    raise WireError(f"{frame} does not inflate: {error}") from None
                if self.inflater.unused_data or self.inflater.eof:
                    raise WireError(f"{frame} ends the deflate stream")
            self.received_checksum = zlib.crc32(body, self.received_checksum)
            if checksum != self.received_checksum:
                raise WireError(f"{frame} has a wrong checksum")
        else:
            frame.body_size = len(body)
        frame.content = body
        return frame

    def message(self, number, kind, flags, content):
        size, start = read_varint(content)
        if size > len(content) - start:
            raise WireError("properties that are longer than their message")
        body = content[start + size :]
        if self.version == 2 and flags & COMPRESSED and body:
            try:
                inflater = zlib.decompressobj(31)
                body = inflater.decompress(body)
            except zlib.error as error:
                raise WireError(f"a body that is not gzip: {error}") from None
            if not inflater.eof or inflater.unused_data:
                raise WireError("a gzip body that is cut short, or has bytes behind its end")
        return Message(number, kind, flags, unpack(content[start : start + size], self.version), body)
