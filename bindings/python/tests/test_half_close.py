"""Peers that end their own direction of the stream only, with and without TLS."""

from __future__ import annotations

import socket
import ssl
import struct
import threading
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
