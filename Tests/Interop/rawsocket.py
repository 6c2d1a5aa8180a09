"""A WebSocket that tests can cut as they like: PyPI's websockets makes the handshake, reads and writes frames, but
which frames and in which TCP segments is the test's choice."""

import itertools
import socket

from websockets.client import ClientProtocol
from websockets.frames import Frame, Opcode
from websockets.server import ServerProtocol
from websockets.uri import parse_uri


class RawSocket:
    """Either role. `events` keeps control frames that came; `next_message` gives whole binary messages."""

    def __init__(self, connection, protocol):
        self.socket, self.protocol = connection, protocol
        self.is_client = isinstance(protocol, ClientProtocol)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.pongs = []
        self.pings = []
        self.close_frame = None
        self.is_ended = False
        self._messages = []
        self._fragments = []

    @classmethod
    def connect(cls, url, subprotocols=("BLIP_3",), early=()):
        """As a client; `early` are BLIP frames that go out in one segment with the upgrade request."""
        uri = parse_uri(url)
        protocol = ClientProtocol(uri, subprotocols=list(subprotocols), max_size=None)
        connection = socket.create_connection((uri.host, uri.port), timeout=20)
        raw = cls(connection, protocol)
        protocol.send_request(protocol.connect())
        request = b"".join(protocol.data_to_send())
        connection.sendall(request + b"".join(raw.encode(Opcode.BINARY, frame) for frame in early))
        while protocol.state.name == "CONNECTING" and protocol.handshake_exc is None:
            raw._receive()
        if protocol.handshake_exc is not None:
            connection.close()
            raise protocol.handshake_exc
        return raw

    @classmethod
    def accept(cls, connection, subprotocols=("BLIP_3",), early=(), change=lambda response: response):
        """As a server; `early` are bytes that go out in one segment with the 101, `change` may alter that."""
        connection.settimeout(20)
        protocol = ServerProtocol(subprotocols=list(subprotocols), max_size=None)
        raw = cls(connection, protocol)
        while not (events := protocol.events_received()):
            data = connection.recv(65536)
            if not data:
                raise ConnectionError("the client left during the handshake")
            protocol.receive_data(data)
        response = change(protocol.accept(events[0]))
        protocol.send_response(response)
        head = b"".join(protocol.data_to_send())
        connection.sendall(head + b"".join(raw.encode(Opcode.BINARY, frame) for frame in early))
        return raw

    @property
    def subprotocol(self):
        return self.protocol.subprotocol

    def encode(self, opcode, data, fin=True):
        return Frame(opcode, data, fin).serialize(mask=self.is_client)

    def send(self, data):
        self.socket.sendall(self.encode(Opcode.BINARY, data))

    def send_frames(self, frames, segment=None):
        """Sends (opcode, data, fin) frames, joined, in TCP segments of that many bytes."""
        data = b"".join(self.encode(*frame) for frame in frames)
        step = segment or max(1, len(data))
        for start in range(0, len(data), step):
            self.socket.sendall(data[start : start + step])

    def next_message(self):
        """The next binary message, pongs sent meanwhile for pings."""
        while not self._messages:
            if self.is_ended:
                raise ConnectionError(f"ended: {self.close_frame}")
            self._receive()
        return self._messages.pop(0)

    def wait_for_pongs(self, pings):
        """Until the last of these pings is answered. One pong may answer several (RFC 6455 §5.5.3), in order."""
        while pings and pings[-1] not in self.pongs:
            assert not self.is_ended, self.close_frame
            self._receive()
        remaining = iter(pings)
        assert all(pong in remaining for pong in self.pongs), "a pong that nobody asked for, or out of order"

    def wait_for_close(self):
        while not self.is_ended and self.close_frame is None:
            self._receive()
        return self.close_frame

    def has_message_within(self, seconds):
        """Whether a whole message comes in time."""
        self.socket.settimeout(seconds)
        try:
            while not self._messages and not self.is_ended:
                self._receive()
        except TimeoutError:
            pass
        finally:
            self.socket.settimeout(20)
        return bool(self._messages)

    def _receive(self):
        data = self.socket.recv(1 << 18)
        if data:
            self.protocol.receive_data(data)
        else:
            self.is_ended = True
            self.protocol.receive_eof()
        for event in self.protocol.events_received():
            if isinstance(event, Frame):
                self._take(event)
        for reply in self.protocol.data_to_send():
            if reply:
                self.socket.sendall(reply)

    def _take(self, frame):
        if frame.opcode == Opcode.PONG:
            self.pongs.append(bytes(frame.data))
        elif frame.opcode == Opcode.PING:
            self.pings.append(bytes(frame.data))
        elif frame.opcode == Opcode.CLOSE:
            self.close_frame = (int.from_bytes(frame.data[:2], "big"), bytes(frame.data[2:]))
        else:
            assert frame.opcode in (Opcode.BINARY, Opcode.CONT), f"opcode {frame.opcode}"
            self._fragments.append(bytes(frame.data))
            if frame.fin:
                self._messages.append(b"".join(self._fragments))
                self._fragments = []

    def close(self):
        self.socket.close()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()


PING_NUMBERS = itertools.count(1)


def pings_of(frames):
    return [data for opcode, data, _ in frames if opcode == Opcode.PING]


def fragments(data, sizes, pings=False):
    """One message as fragments of the given sizes (the last one repeats), with pings, all different, between them."""
    frames = []
    start = 0
    index = 0
    opcode = Opcode.BINARY
    while True:
        size = sizes[min(index, len(sizes) - 1)]
        piece = data[start : start + size]
        start += size
        index += 1
        final = start >= len(data)
        frames.append((opcode, piece, final))
        opcode = Opcode.CONT
        if final:
            return frames
        if pings:
            frames.append((Opcode.PING, b"between %d" % next(PING_NUMBERS), True))
