"""WebSocket connections (RFC 6455) that can be handled as badly as a test wants: heads, frames and segments are the
caller's choice. What comes from the other side is read strictly."""

import base64
import hashlib
import os
import select
import socket
import struct
import time

TEXT, BINARY, CLOSE, PING, PONG = 1, 2, 8, 9, 10
GUID = b"258EAFA5-E914-47DA-95CA-C5AB0DC85B11"
FORBIDDEN_CODES = {1004, 1005, 1006, 1015}


class Ended(Exception):
    """The connection is over where a test wanted it to go on."""


def accept_of(key):
    return base64.b64encode(hashlib.sha1(key.encode() + GUID).digest()).decode()


def mask(data, key):
    """XOR with the repeated key, by the integers of Python, which do it fast."""
    if not data:
        return b""
    pad = (key * (len(data) // 4 + 1))[: len(data)]
    return (int.from_bytes(data, "big") ^ int.from_bytes(pad, "big")).to_bytes(len(data), "big")


class Head:
    """An HTTP/1.1 head that was received."""

    def __init__(self, data):
        lines = data.decode("latin-1").split("\r\n")
        self.first = lines[0]
        self.fields = []
        for line in lines[1:]:
            if line:
                name, _, value = line.partition(":")
                self.fields.append((name.strip(), value.strip()))

    def all(self, name):
        return [value for key, value in self.fields if key.lower() == name.lower()]

    def get(self, name):
        return next(iter(self.all(name)), None)

    @property
    def status(self):
        parts = self.first.split(" ")
        return int(parts[1]) if len(parts) > 1 and parts[1].isdigit() else 0


class WebSocket:
    def __init__(self, connection, is_client):
        self.socket, self.is_client = connection, is_client
        self.socket.setblocking(False)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.buffer = bytearray()
        self.is_open = False
        self.is_ended = False
        self.was_reset = False
        self.messages = []
        self.pings = []
        self.pongs = []
        self.close_code = None  # None: no close frame has come; 0: one without a code
        self.close_reason = b""
        self.close_sent = False
        self.after_close = 0
        self.faults = []
        self.mask_keys = []
        self.answers_pings = True
        self._fragments = None

    # Bytes.

    def write(self, data, segment=None):
        """Sends bytes, in segments of a size if wanted, and takes in what comes meanwhile."""
        step = segment or max(1, len(data))
        for start in range(0, len(data), step):
            piece = memoryview(data)[start : start + step]
            deadline = time.monotonic() + 30
            while piece:
                if self.is_ended:
                    raise Ended("the peer ended the connection")
                if time.monotonic() > deadline:
                    raise Ended("the peer takes no more bytes")
                readable, writable, _ = select.select([self.socket], [self.socket], [], 1)
                if readable:
                    self._read()
                if writable:
                    try:
                        piece = piece[self.socket.send(piece) :]
                    except BlockingIOError:
                        pass
                    except OSError:
                        self.is_ended = self.was_reset = True

    def _read(self):
        try:
            data = self.socket.recv(1 << 18)
        except BlockingIOError:
            return
        except OSError:
            data, self.was_reset = b"", True
        if not data:
            self.is_ended = True
        self.buffer += data
        if self.is_open:
            self._parse()

    def pump(self, until, timeout):
        """Receives until a condition holds or time is up; whether it holds."""
        deadline = time.monotonic() + timeout
        while not until():
            left = deadline - time.monotonic()
            if left <= 0 or self.is_ended:
                return until()
            if select.select([self.socket], [], [], left)[0]:
                self._read()
        return True

    def read_head(self, timeout):
        """The head at the start of what was received; what is behind it stays."""
        if not self.pump(lambda: b"\r\n\r\n" in self.buffer, timeout):
            raise Ended(f"no HTTP head came, but {bytes(self.buffer[:100])!r}")
        end = self.buffer.index(b"\r\n\r\n") + 4
        head = Head(bytes(self.buffer[:end]))
        del self.buffer[:end]
        return head

    def begin(self):
        """From here on both sides speak WebSocket."""
        self.is_open = True
        self._parse()

    # Frames.

    def encode(self, opcode, data, final=True, bits=0, masked=None, length=None):
        """A frame; the length field may lie, and the mask be missing."""
        masked = self.is_client if masked is None else masked
        size = len(data) if length is None else length
        head = bytes([(0x80 if final else 0) | bits | opcode])
        bit = 0x80 if masked else 0
        if size < 126:
            head += bytes([bit | size])
        elif size < 65536:
            head += bytes([bit | 126]) + struct.pack(">H", size)
        else:
            head += bytes([bit | 127]) + struct.pack(">Q", size)
        if not masked:
            return head + data
        key = os.urandom(4)
        return head + key + mask(data, key)

    def send(self, data, opcode=BINARY, segment=None):
        self.write(self.encode(opcode, data), segment)

    def send_all(self, messages, segment=None):
        """Several binary messages in one go."""
        self.write(b"".join(self.encode(BINARY, message) for message in messages), segment)

    def fragments(self, data, sizes, opcode=BINARY, ping=False):
        """One message as fragments of these sizes (the last one repeats), with pings in between if wanted."""
        out, start, index = b"", 0, 0
        while True:
            size = sizes[min(index, len(sizes) - 1)]
            piece, start, index = data[start : start + size], start + size, index + 1
            final = start >= len(data)
            out += self.encode(opcode, piece, final)
            opcode = 0
            if final:
                return out
            if ping:
                out += self.encode(PING, b"between")

    def send_close(self, code=1000, reason=b""):
        self.close_sent = True
        self.write(self.encode(CLOSE, (struct.pack(">H", code) if code else b"") + reason))

    def _parse(self):
        while len(self.buffer) >= 2:
            first, second = self.buffer[0], self.buffer[1]
            size, place = second & 0x7F, 2
            if size == 126:
                if len(self.buffer) < 4:
                    return
                size, place = struct.unpack_from(">H", self.buffer, 2)[0], 4
            elif size == 127:
                if len(self.buffer) < 10:
                    return
                size, place = struct.unpack_from(">Q", self.buffer, 2)[0], 10
            key = b""
            if second & 0x80:
                key = bytes(self.buffer[place : place + 4])
                place += 4
            if len(self.buffer) < place + size:
                return
            data = bytes(self.buffer[place : place + size])
            del self.buffer[: place + size]
            if bool(key) == self.is_client:
                self.faults.append("a masked frame of a server" if self.is_client else "an unmasked frame of a client")
            if key:
                self.mask_keys.append(key)
                data = mask(data, key)
            self._take(first, data)

    def _take(self, first, data):
        opcode, final = first & 0x0F, bool(first & 0x80)
        if first & 0x70:
            self.faults.append(f"reserved bits in a frame: {first:02x}")
        if self.close_code is not None:
            self.after_close += 1
            return
        if opcode >= 8 and (len(data) > 125 or not final):
            self.faults.append("a control frame that is too long or in fragments")
        if opcode == CLOSE:
            self.close_code = struct.unpack_from(">H", data)[0] if len(data) >= 2 else 0
            self.close_reason = data[2:]
            if len(data) == 1:
                self.faults.append("a close frame with one byte")
            try:
                self.close_reason.decode()
            except UnicodeDecodeError:
                self.faults.append("a close reason that is not UTF-8")
        elif opcode == PING:
            self.pings.append(data)
            if self.answers_pings and not self.close_sent:
                self._send_soon(self.encode(PONG, data))
        elif opcode == PONG:
            self.pongs.append(data)
        elif opcode in (TEXT, BINARY, 0):
            if (opcode == 0) == (self._fragments is None):
                self.faults.append(f"opcode {opcode} out of place")
            if opcode:
                self._fragments = (opcode, bytearray())
            if self._fragments:
                self._fragments[1].extend(data)
                if final:
                    self.messages.append((self._fragments[0], bytes(self._fragments[1])))
                    self._fragments = None
        else:
            self.faults.append(f"the reserved opcode {opcode}")

    def _send_soon(self, data):
        try:
            self.socket.send(data)
        except OSError:
            pass

    def end_output(self):
        try:
            self.socket.shutdown(socket.SHUT_WR)
        except OSError:
            pass

    def close(self):
        self.socket.close()

    def reset(self):
        """Ends with a TCP reset."""
        self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.socket.close()
