"""Peers that end their own direction of the stream only, with and without TLS."""

from __future__ import annotations

import base64
import os
import socket
import ssl
import struct
import threading
import time
import zlib
from typing import Any

import pytest
from conftest import LIMIT, eventually

import blip.sync

REQUEST = b"\0\7\2\0slow\0x"
ANSWER = b"\0\0done"


def frame(number: int, flags: int, payload: bytes) -> bytes:
    return struct.pack(">IIHH", 0x9B34F206, number, flags, len(payload) + 12) + payload


class Peer:
    """A client of BLIP 1 in TLS that says close_notify and goes on reading."""

    def __init__(self, port: int, certificates: dict[str, str], version: ssl.TLSVersion) -> None:
        context = ssl.create_default_context(cafile=certificates["ca.pem"])
        context.minimum_version = context.maximum_version = version
        self.socket = socket.create_connection(("127.0.0.1", port), LIMIT)
        self.incoming, self.outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        self.tls = context.wrap_bio(self.incoming, self.outgoing, server_hostname="localhost")
        while True:
            try:
                self.tls.do_handshake()
                break
            except ssl.SSLWantReadError:
                self.exchange()

    def exchange(self) -> bool:
        self.flush()
        data = self.socket.recv(65536)
        self.incoming.write(data)
        return bool(data)

    def flush(self) -> None:
        self.socket.sendall(self.outgoing.read())

    def end_output(self) -> None:
        with pytest.raises(ssl.SSLWantReadError):
            self.tls.unwrap()
        self.flush()

    def rest(self) -> bytes:
        data = b""
        while True:
            try:
                piece = self.tls.read(65536)
                if not piece:
                    return data
                data += piece
            except ssl.SSLWantReadError:
                if not self.exchange():
                    return data
            except ssl.SSLZeroReturnError:
                return data


@pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3], ids=lambda version: version.name)
def test_tls(version: ssl.TLSVersion, certificates: dict[str, str]) -> None:
    """Since TLS 1.3, close_notify ends one direction; before, both."""
    goes_on = version == ssl.TLSVersion.TLSv1_3
    arrived, may_answer = threading.Event(), threading.Event()

    def slow(request: Any) -> bytes:
        arrived.set()
        may_answer.wait(LIMIT)
        return b"done"

    identity = (certificates["server.pem"], certificates["server.key"])
    with blip.sync.serve(
        "127.0.0.1", 0, tls=identity, blip1=True, websocket=False, half_close=LIMIT, handlers={"slow": slow}
    ) as listener:
        peer = Peer(listener.port, certificates, version)
        peer.tls.write(frame(1, 0, REQUEST))
        peer.flush()
        assert arrived.wait(LIMIT)
        peer.end_output()
        if goes_on:
            # The end is there before the answer.
            assert listener.connection_count == 1
            may_answer.set()
            data = peer.rest()
            assert data.startswith(frame(1, 1, ANSWER))
            assert data[len(frame(1, 1, ANSWER)) :] == frame(1, 0x140, b"\0\6\2\0Bye\0")
        else:
            assert peer.rest() == b""
            may_answer.set()
        eventually(lambda: listener.connection_count == 0)
        peer.socket.close()


def test_plain_and_by_default() -> None:
    for half_close, expected in ((LIMIT, frame(1, 1, ANSWER)), (None, b"")):
        arrived, may_answer = threading.Event(), threading.Event()

        def slow(request: Any, arrived: Any = arrived, may_answer: Any = may_answer) -> bytes:
            arrived.set()
            may_answer.wait(LIMIT)
            return b"done"

        with blip.sync.serve("127.0.0.1", 0, blip1=True, half_close=half_close, handlers={"slow": slow}) as listener:
            with socket.create_connection(("127.0.0.1", listener.port), LIMIT) as peer:
                peer.sendall(frame(1, 0, REQUEST))
                assert arrived.wait(LIMIT)
                peer.shutdown(socket.SHUT_WR)
                if half_close is None:
                    assert peer.recv(100) == b""
                may_answer.set()
                assert peer.recv(len(expected) or 1) == expected
            eventually(lambda: listener.connection_count == 0)


def test_the_rest_of_an_answer_while_the_server_closes() -> None:
    """All is answered, and a part of it waits for the socket: so little that only its size decides where it is."""
    key = base64.b64encode(os.urandom(16)).decode()
    upgrade = (
        "GET / HTTP/1.1\r\nHost: a\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
        f"Sec-WebSocket-Version: 13\r\nSec-WebSocket-Protocol: BLIP_3\r\nSec-WebSocket-Key: {key}\r\n\r\n"
    ).encode()
    properties = b"Profile\0large\0"
    content = bytes([len(properties)]) + properties
    for size in range(60_000, 120_000, 3_000):
        asked: list[int] = []

        def large(request: Any, asked: Any = asked, size: int = size) -> bytes:
            asked.append(size)
            return bytes(size)

        with blip.sync.serve("127.0.0.1", 0, half_close=LIMIT, handlers={"large": large}) as listener:
            with socket.socket() as peer:
                peer.settimeout(LIMIT)
                peer.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
                peer.connect(("127.0.0.1", listener.port))
                peer.sendall(upgrade)
                head = b""
                while not head.endswith(b"\r\n\r\n"):
                    head += peer.recv(1)
                checksum = 0
                for number in (1, 2, 3):
                    checksum = zlib.crc32(content, checksum)
                    request = bytes([number, 0]) + content + struct.pack(">I", checksum)
                    peer.sendall(bytes([0x82, 0x80 | len(request), 0, 0, 0, 0]) + request)
                eventually(lambda asked=asked: len(asked) == 3)
                stopper = threading.Thread(target=listener.close)
                stopper.start()
                eventually(lambda listener=listener: all(not each.is_open for each in listener.connections))
                time.sleep(0.02)
                peer.shutdown(socket.SHUT_WR)
                data = b""
                while True:
                    piece = peer.recv(65536)
                    if not piece:
                        break
                    data += piece
                assert data.count(0) >= 3 * size and data.endswith(struct.pack(">BBH", 0x88, 2, 1001)), size
                stopper.join(LIMIT)
