"""Sockets that the program brings, the judgement of certificates, and what TLS agreed on."""

from __future__ import annotations

import socket
from typing import Any

import pytest
from conftest import run

import blip
import blip.sync
from blip.errors import ConnectionFailed


def echo(request: Any) -> bytes:
    return bytes(request.body)


def test_a_socket_that_listens_and_one_that_is_connected() -> None:
    listening = socket.create_server(("127.0.0.1", 0))
    port = listening.getsockname()[1]
    with blip.sync.serve(fd=listening.detach(), handlers={"echo": echo}) as listener:
        assert listener.port == port
        connected = socket.create_connection(("127.0.0.1", port))
        with blip.sync.connect(f"ws://127.0.0.1:{port}/", fd=connected.detach()) as connection:
            assert bytes(connection.request("echo", b"x").body) == b"x"
        one, other = socket.socketpair()
        listener.accept_fd(one.detach())
        with blip.sync.connect("ws://localhost/", fd=other.detach()) as connection:
            assert bytes(connection.request("echo", b"y").body) == b"y"
    with pytest.raises(blip.Error):
        blip.sync.connect("ws://localhost/", fd=9999)
    with pytest.raises(blip.Error, match="systemd"):
        blip.sync.serve(systemd="none such")


def test_one_listener_at_several_places(tmp_path: Any) -> None:
    path = str(tmp_path / "socket")
    with blip.sync.serve("127.0.0.1", 0, handlers={"echo": echo}) as listener:
        listener.listen("127.0.0.1")
        listener.listen(unix_path=path)
        taken = listener.port
        with pytest.raises(blip.Error, match="in use"):
            listener.listen("127.0.0.1", taken)
        urls, ports = listener.urls, listener.ports
        assert len(set(urls)) == 3 and urls[0] == listener.url
        assert ports[0] == taken and ports[1] not in (None, taken) and ports[2] is None
        for url in urls:
            with blip.sync.connect(url) as connection:
                assert bytes(connection.request("echo", b"x").body) == b"x"
    for url in urls:
        with pytest.raises(ConnectionFailed):
            blip.sync.connect(url)


@pytest.mark.parametrize("accept", [True, False])
def test_the_program_judges(accept: bool, certificates: dict[str, str]) -> None:
    seen: list[Any] = []

    def judge(trust: blip.Trust) -> bool:
        seen.append((trust.host, trust.code != 0, len(trust.certificates[0]) > 100, trust.text))
        return accept

    identity = (certificates["server.pem"], certificates["server.key"])
    with blip.sync.serve("127.0.0.1", 0, tls=identity, handlers={"echo": echo}) as listener:
        url = f"wss://localhost:{listener.port}/"
        if accept:
            with blip.sync.connect(url, on_trust=judge) as connection:
                assert bytes(connection.request("echo", b"x").body) == b"x"
        else:
            with pytest.raises(ConnectionFailed, match="does not trust"):
                blip.sync.connect(url, on_trust=judge)
    assert seen[0][:3] == ("localhost", True, True) and "certificate" in seen[0][3]


def test_a_coroutine_judges(certificates: dict[str, str]) -> None:
    async def judge(trust: blip.Trust) -> bool:
        return trust.host == "localhost"

    async def main() -> None:
        identity = (certificates["server.pem"], certificates["server.key"])
        async with blip.serve("127.0.0.1", 0, tls=identity, handlers={"echo": echo}) as listener:
            async with blip.connect(f"wss://localhost:{listener.port}/", on_trust=judge) as connection:
                assert bytes((await connection.request("echo", b"x")).body) == b"x"
            with pytest.raises(ConnectionFailed):
                await blip.connect(f"wss://127.0.0.1:{listener.port}/", on_trust=judge)

    run(main())


def test_protocol_suites_and_resumption(certificates: dict[str, str]) -> None:
    identity = (certificates["server.pem"], certificates["server.key"])
    suite = "TLS_CHACHA20_POLY1305_SHA256"
    with blip.sync.serve("127.0.0.1", 0, tls=identity, alpn="http/1.1", handlers={"echo": echo}) as listener:
        resumed = []
        for _ in range(2):
            options = {"ca_file": certificates["ca.pem"], "alpn": ["http/1.1"], "suites": suite}
            with blip.sync.connect(f"wss://localhost:{listener.port}/", **options) as connection:
                connection.request("echo", b"x")
                assert (connection.tls_alpn, connection.tls_cipher) == ("http/1.1", suite)
                resumed.append(connection.tls_is_resumed)
        assert resumed == [False, True]
