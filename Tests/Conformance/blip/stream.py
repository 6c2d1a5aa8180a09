"""BLIP 1: frames and messages on a bare byte stream, and a conversation about them."""

import select
import socket
import struct
import time
import zlib
from dataclasses import dataclass, field

from .wire import ERROR, REPLY, REQUEST, Message, WireError, gzip, pack

MAGIC = 0x9B34F206
COMPRESSED, URGENT, NO_REPLY, MORE, META = 0x10, 0x20, 0x40, 0x80, 0x100

# BLIP 1 §"Message Properties": the text of control character 1 is the first, and so on.
ABBREVIATIONS = [
    b"Content-Type", b"Profile", b"application/octet-stream", b"text/plain; charset=UTF-8", b"text/xml", b"text/yaml",
    b"Channel", b"Error-Code", b"Error-Domain",
]  # fmt: skip


class Failed(Exception):
    """As that of `peer`, which imports this."""


def encode(number, flags, payload=b"", size=None, magic=MAGIC):
    """One frame; `size` stands in for the true one in its header."""
    return struct.pack(">IIHH", magic, number, flags, len(payload) + 12 if size is None else size) + payload


def content_of(properties=(), body=b"", flags=0):
    """The bytes of a message, to be cut into frames."""
    block = pack(properties)
    if flags & COMPRESSED and body:
        body = gzip(body)
    return struct.pack(">H", len(block)) + block + body


def decode(number, kind, flags, content):
    """The message that such frames make, read strictly."""
    if len(content) < 2:
        raise WireError("a message without the length of its properties")
    size = struct.unpack(">H", content[:2])[0]
    if size > len(content) - 2:
        raise WireError("properties that are longer than their message")
    block, body = content[2 : size + 2], content[size + 2 :]
    if block and block[-1]:
        raise WireError("properties that do not end with NUL")
    texts = block[:-1].split(b"\0") if block else []
    if len(texts) % 2:
        raise WireError("an odd number of property texts")
    for index, text in enumerate(texts):
        if len(text) == 1 and text[0] < 0x20:
            if not 1 <= text[0] <= len(ABBREVIATIONS):
                raise WireError(f"the undefined abbreviation {text[0]}")
            texts[index] = ABBREVIATIONS[text[0] - 1]
    if flags & COMPRESSED and body:
        inflater = zlib.decompressobj(31)
        try:
            body = inflater.decompress(body)
        except zlib.error as error:
            raise WireError(f"a body that is not gzip: {error}") from None
        if not inflater.eof or inflater.unused_data:
            raise WireError("a gzip body that is cut short, or has bytes behind its end")
    texts = [text.decode() for text in texts]
    return Message(number, kind, flags, list(zip(texts[::2], texts[1::2])), body)


@dataclass
class Assembly:
    """A message that comes in, or has come."""

    kind: int
    flags: int
    sizes: list = field(default_factory=list)
    content: bytearray = field(default_factory=bytearray)
    message: Message = None


class StreamPeer:
    """One conversation; what must hold in every one is checked by itself."""

    def __init__(self, trial, connection):
        self.trial, self.connection = trial, connection
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.socket = self
        self.buffer = bytearray()
        self.next_number = 1
        self.seen_request = 0
        self.incoming = {}
        self.requests = []
        self.order = []
        self.is_ended = self.is_over = False
        self.expects_failure = self.has_said_bye = False
        self.answered = set()

    def __enter__(self):
        return self

    def __exit__(self, kind, value, trace):
        try:
            if kind is None:
                self.finish()
        finally:
            self.close()
        return False

    def close(self):
        self.connection.close()

    # Sending.

    def write(self, data, segment=None):
        try:
            if segment is None:
                self.connection.sendall(data)
                return
            for start in range(0, len(data), segment):
                self.connection.sendall(data[start : start + segment])
                time.sleep(0.0005)
        except OSError:
            self.is_ended = True

    def frames_of(self, number, kind, properties=(), body=b"", flags=0, sizes=(4000,), content=None):
        if content is None:
            content = content_of(properties, body, flags)
        start = index = 0
        while True:
            size = sizes[min(index, len(sizes) - 1)]
            piece, start, index = content[start : start + size], start + size, index + 1
            more = MORE if start < len(content) else 0
            yield encode(number, kind | flags | more, piece)
            if not more:
                return

    def new_number(self):
        self.next_number += 1
        return self.next_number - 1

    def request(self, profile, properties=(), body=b"", flags=0, sizes=(4000,), segment=None):
        number = self.new_number()
        self.has_said_bye = self.has_said_bye or bool(profile == "Bye" and flags & META)
        first = [("Profile", profile)] if profile is not None else []
        self.write(b"".join(self.frames_of(number, REQUEST, [*first, *properties], body, flags, sizes)), segment)
        return number

    def respond(self, number, properties=(), body=b"", flags=0, sizes=(4000,), kind=REPLY):
        self.answered.add(number)
        self.write(b"".join(self.frames_of(number, kind, properties, body, flags, sizes)))

    def end_output(self):
        try:
            self.connection.shutdown(socket.SHUT_WR)
        except OSError:
            self.is_ended = True

    # Receiving.

    def _take(self):
        while len(self.buffer) >= 12:
            magic, number, flags, size = struct.unpack(">IIHH", self.buffer[:12])
            if magic != MAGIC:
                raise Failed(f"it sent {bytes(self.buffer[:12]).hex()} where a frame had to begin")
            if size < 12:
                raise Failed(f"it sent a frame of size {size}")
            if len(self.buffer) < size:
                return
            payload = bytes(self.buffer[12:size])
            del self.buffer[:size]
            try:
                self._frame(number, flags, payload, size)
            except WireError as error:
                raise Failed(f"it sent {error}") from None

    def _frame(self, number, flags, payload, size):
        trial = self.trial
        kind = flags & 15
        trial.strict(size <= 16384, f"a frame of {size} bytes is above 16,384")
        if kind > ERROR:
            return trial.broken(f"a frame of the unknown type {kind}")
        key = (kind != REQUEST, number)
        assembly = self.incoming.get(key)
        if assembly is None or assembly.message:
            if kind == REQUEST:
                if number != self.seen_request + 1:
                    trial.broken(f"request {number} follows on request {self.seen_request}")
                self.seen_request = number
            elif assembly:
                trial.broken(f"a second reply to request {number}")
            elif not 0 < number < self.next_number:
                trial.broken(f"a reply to request {number}, which was never sent")
            assembly = self.incoming[key] = Assembly(kind, flags & ~MORE)
        elif not payload:
            trial.strict(False, "a frame that continues a message, but is empty")
        trial.strict(flags & ~MORE == assembly.flags, f"the flags of {number} change from frame to frame")
        self.order.append(key)
        assembly.sizes.append(size)
        assembly.content += payload
        if not flags & MORE:
            assembly.message = decode(number, kind, assembly.flags & ~15, bytes(assembly.content))
            if kind == REQUEST:
                self.requests.append(assembly.message)

    def pump(self, until, timeout=None):
        """Reads until the condition holds; whether it does."""
        end = time.monotonic() + (self.trial.timeout if timeout is None else timeout)
        while True:
            self._take()
            if until():
                return True
            left = end - time.monotonic()
            if left <= 0 or self.is_ended:
                return False
            if not select.select([self.connection], [], [], left)[0]:
                continue
            try:
                data = self.connection.recv(1 << 16)
            except OSError:
                data = b""
            self.buffer += data
            self.is_ended = not data

    def wait(self, until, text, timeout=None):
        if not self.pump(until, timeout):
            raise Failed(f"{text}: {'it ended the connection' if self.is_ended else 'time is up'}")

    def reply(self, number):
        """The whole reply to a request."""
        key = (True, number)
        self.wait(lambda: key in self.incoming and self.incoming[key].message, f"no reply to request {number}")
        return self.incoming[key].message

    def wait_request(self):
        """The first whole request that is none of the protocol itself."""

        def found():
            return next((request for request in self.requests if not request.flags & META), None)

        self.wait(found, "no request comes")
        return found()

    def silence(self, seconds=0.3):
        count = len(self.order)
        self.pump(lambda: False, seconds)
        if self.is_ended:
            raise Failed("it ended the connection")
        if len(self.order) > count:
            raise Failed("it sent something")

    # What a case can end with.

    def check_alive(self):
        reply = self.reply(self.request("conformance/no-such-profile"))
        self.check_error(reply, "BLIP", "404")

    def check_error(self, reply, domain, *codes):
        found = reply.property("Error-Domain") or "BLIP", reply.property("Error-Code")
        if reply.kind != ERROR or found[0] != domain or found[1] not in codes:
            raise Failed(f"an error {domain}/{' or '.join(codes)} was due, not {reply}")

    def expect_end(self):
        """It ends the connection; a goodbye may come before."""
        self.wait(lambda: self.is_ended, "the connection had to be ended, but it stays open")
        self.is_over = True
        if self.trial.role == "client":
            self.trial.end_client(self, failed=True)

    def is_answered_to_its_end(self):
        for request in self.requests:
            if request.number not in self.answered and not request.flags & (NO_REPLY | META):
                self.respond(request.number)
        return self.is_ended

    def said_bye(self):
        return any(request.flags & META and request.property("Profile") == "Bye" for request in self.requests)

    def finish(self):
        """The orderly end: the client under test says Bye, or we do."""
        if self.is_over:
            return
        if self.trial.role == "client":
            self.wait(self.is_answered_to_its_end, "the client does not end the stream")
            if not self.said_bye() and not self.has_said_bye:
                raise Failed("the client ended the stream without Bye")
            self.close()
            self.trial.end_client(self, failed=False)
            return
        if self.is_ended:
            raise Failed("it ended the connection")
        reply = self.reply(self.request("Bye", flags=META))
        if reply.kind != REPLY or reply.properties or reply.body:
            raise Failed(f"Bye was answered with {reply}")
        self.end_output()
        self.wait(lambda: self.is_ended, "the stream stays open after Bye and its end")
