"""Connections through proxies, through the library and back."""

from __future__ import annotations

import socket
import threading
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Iterator

import pytest
from conftest import run_script
from proxies import DigestProxy, ForgetfulProxy, Proxy, SocksProxy
from sites import Site, answer, upgrade

import blip
import blip.sync
from blip.errors import ConnectionFailed

PAYLOAD = bytes(range(256)) * 2000


def echo(request: Any) -> bytes:
    return bytes(request.body)


@pytest.fixture
def plain() -> Iterator[blip.sync.Listener]:
    with blip.sync.serve("127.0.0.1", 0, handlers={"echo": echo}) as listener:
        yield listener


@pytest.fixture
def secure(certificates: dict[str, str]) -> Iterator[blip.sync.Listener]:
    identity = (certificates["server.pem"], certificates["server.key"])
    with blip.sync.serve("127.0.0.1", 0, tls=identity, handlers={"echo": echo}) as listener:
        yield listener


def talk(url: str, **options: Any) -> bool:
    """Sends and receives; whether the connection says that it is secure."""
    with blip.sync.connect(url, **options) as connection:
        for body in (b"", b"x", PAYLOAD):
            assert bytes(connection.request("echo", body).body) == body
        return connection.is_secure


@pytest.mark.parametrize("kind", [Proxy, SocksProxy])
@pytest.mark.parametrize("tls", [False, True])
def test_ws_and_wss_go_through(
    kind: type[Proxy], tls: bool, plain: Any, secure: Any, certificates: dict[str, str]
) -> None:
    port = (secure if tls else plain).port
    with kind() as proxy:
        url = f"{'wss' if tls else 'ws'}://localhost:{port}/"
        assert talk(url, proxy=proxy.url(), ca_file=certificates["ca.pem"]) == tls
        assert proxy.seen == [f"localhost:{port}"]


@pytest.mark.parametrize("tls", [False, True])
def test_tls_in_tls(tls: bool, plain: Any, secure: Any, certificates: dict[str, str]) -> None:
    with Proxy(tls=(certificates["server.pem"], certificates["server.key"])) as proxy:
        port = (secure if tls else plain).port
        url = f"{'wss' if tls else 'ws'}://localhost:{port}/"
        trust = {"ca_file": certificates["ca.pem"], "proxy_ca_file": certificates["ca.pem"]}
        assert talk(url, proxy=proxy.url(), **trust) == tls
        with pytest.raises(ConnectionFailed, match="proxy.*certificate"):
            talk(url, proxy=proxy.url(), ca_file=certificates["ca.pem"])
        assert proxy.seen == [f"localhost:{port}"]


def test_much_goes_both_ways_through_tls_in_tls(secure: Any, certificates: dict[str, str]) -> None:
    with Proxy(tls=(certificates["server.pem"], certificates["server.key"])) as proxy:
        trust = {"ca_file": certificates["ca.pem"], "proxy_ca_file": certificates["ca.pem"]}
        with blip.sync.connect(f"wss://localhost:{secure.port}/", proxy=proxy.url(), **trust) as connection:
            body = PAYLOAD * 40
            with ThreadPoolExecutor(3) as threads:
                for reply in threads.map(lambda _: connection.request("echo", body), range(3)):
                    assert bytes(reply.body) == body


@pytest.mark.parametrize("kind", [Proxy, SocksProxy])
def test_user_and_password(kind: type[Proxy], plain: Any) -> None:
    url = f"ws://127.0.0.1:{plain.port}/"
    with kind(user="me", password="s3c ret:") as proxy:
        talk(url, proxy=proxy.url("me:s3c%20ret%3A@"))
        for secret in ("", "me:wrong-one@"):
            with pytest.raises(ConnectionFailed, match="authentication|user name") as caught:
                talk(url, proxy=proxy.url(secret))
            assert "wrong-one" not in str(caught.value)
            assert caught.value.status == blip.Status.PROXY


def test_digest_and_a_proxy_that_closes(plain: Any) -> None:
    url = f"ws://127.0.0.1:{plain.port}/"
    with DigestProxy(user="me", password="secret") as proxy:
        talk(url, proxy=proxy.url("me:secret@"))
        assert not any(b"secret" in head for head in proxy.heads)
        assert proxy.connections == 2
        with pytest.raises(ConnectionFailed, match="refuses the user name or password"):
            talk(url, proxy=proxy.url("me:other@"))


def test_program_answers_a_proxy(plain: Any, secure: Any, certificates: dict[str, str]) -> None:
    asked = []

    def ask(challenge: blip.Challenge) -> Any:
        asked.append((challenge.host, challenge.is_proxy, challenge.attempts, challenge.schemes, challenge.realm))
        return ("me", "wrong" if challenge.attempts == 1 else "secret")

    with Proxy(user="me", password="secret") as proxy:
        host = f"127.0.0.1:{proxy.port}"
        talk(f"ws://127.0.0.1:{plain.port}/", proxy=proxy.url(), on_challenge=ask)
        assert asked == [(host, True, number, ["basic"], "x") for number in (1, 2)]
        assert proxy.connections == 1
        # What the URL says comes first, and the program is asked when it was refused.
        asked.clear()
        talk(f"ws://127.0.0.1:{plain.port}/", proxy=proxy.url("me:secret@"), on_challenge=ask)
        assert asked == []
        url = f"wss://localhost:{secure.port}/"
        assert talk(url, proxy=proxy.url("me:other@"), ca_file=certificates["ca.pem"], on_challenge=ask)
        assert [each[2] for each in asked] == [2]


def test_program_answers_a_proxy_later(plain: Any) -> None:
    def ask(challenge: blip.Challenge) -> None:
        threading.Timer(0.5, lambda: challenge.answer_password("me", "secret")).start()

    url = f"ws://127.0.0.1:{plain.port}/"
    # The time that the program takes does not count. The others end connections, with the refusal or when asked again.
    for kind, connections in ((Proxy, 1), (DigestProxy, 2), (ForgetfulProxy, 2)):
        with kind(user="me", password="secret") as proxy:
            talk(url, proxy=proxy.url(), on_challenge=ask, timeout=0.4)
            assert proxy.connections == connections
            assert not any(b"secret" in head for head in proxy.heads)


def test_program_does_not_answer_a_proxy(plain: Any) -> None:
    def broken(challenge: blip.Challenge) -> None:
        raise RuntimeError("no")

    url = f"ws://127.0.0.1:{plain.port}/"
    with Proxy(user="me", password="secret") as proxy:
        for ask in (lambda challenge: challenge.cancel(), lambda challenge: None, broken):
            with pytest.raises(ConnectionFailed, match="proxy asks for authentication") as caught:
                talk(url, proxy=proxy.url(), on_challenge=ask)
            assert caught.value.status == blip.Status.PROXY
            assert caught.value.code == 407
        # Nobody takes an endless dialogue.
        before = len(proxy.heads)
        with pytest.raises(ConnectionFailed, match="proxy refuses"):
            talk(url, proxy=proxy.url(), on_challenge=lambda challenge: ("me", f"secret{challenge.attempts}"))
        assert len(proxy.heads) - before == 21


def test_proxy_and_server_are_both_answered() -> None:
    """What was said to a proxy counts for the next byte stream too, and is not said to the server."""
    asked = []

    def ask(challenge: blip.Challenge) -> Any:
        asked.append((challenge.is_proxy, challenge.host))
        return ("me", "secret") if challenge.is_proxy else ("you", "s3cr3t")

    def script(head: bytes) -> bytes:
        assert b"Proxy-Authorization" not in head
        if b"\r\nAuthorization: Basic " in head:
            return upgrade(head)
        return answer(401, 'WWW-Authenticate: Basic realm="site"', "Connection: close")

    with Site(script) as site, Proxy(user="me", password="secret") as proxy:
        blip.sync.connect(site.url(), proxy=proxy.url(), on_challenge=ask, close_timeout=0.2).close()
        assert asked == [(True, f"127.0.0.1:{proxy.port}"), (False, f"127.0.0.1:{site.port}")]
        assert site.connections == 2


def test_socks_with_names_looked_up_here(plain: Any) -> None:
    with SocksProxy() as proxy:
        talk(f"ws://localhost:{plain.port}/", proxy=proxy.url(scheme="socks5"), ip="only4")
        assert proxy.seen == [f"127.0.0.1:{plain.port}"]


def test_socks_tries_the_next_address(plain: Any) -> None:
    with SocksProxy() as proxy:
        talk(f"ws://localhost:{plain.port}/", proxy=proxy.url(scheme="socks5"), ip="prefer6")
        assert proxy.seen[-1] == f"127.0.0.1:{plain.port}"


def test_socks_tells_that_the_target_refuses() -> None:
    with socket.socket() as unused, SocksProxy() as proxy:
        unused.bind(("127.0.0.1", 0))
        port = unused.getsockname()[1]
        with pytest.raises(ConnectionFailed, match="the target refused the connection"):
            talk(f"ws://127.0.0.1:{port}/", proxy=proxy.url())


@pytest.mark.parametrize(
    ("kind", "answer", "words"),
    [
        (Proxy, b"HTTP/1.1 502 Bad Gateway\r\n\r\n", "HTTP status 502"),
        (Proxy, b"SSH-2.0-OpenSSH_9.2\r\n", "does not answer as an HTTP proxy"),
        (Proxy, b"HTTP/1.1 200 OK\r\n" + b"X: " + b"y" * 40000, "limit"),
        (Proxy, b"\x15\x03\x01\x00\x02\x02\x46", "https proxy URL"),
        (Proxy, b"\x00" * 10, "does not answer as an HTTP proxy"),
        (SocksProxy, b"HTTP/1.1 400 Bad Request\r\n\r\n", "http proxy URL"),
        (SocksProxy, b"\x05\x07", "not offered"),
        (SocksProxy, b"\x04\x00", "SOCKS 5"),
        (SocksProxy, b"\x05\x00\x05\x00\x00\x09\x00", "unknown kind of address"),
        (SocksProxy, b"\x05\x00\x05\x02\x00\x01\x00\x00\x00\x00\x00\x00", "rules do not allow"),
    ],
)
def test_garbage_is_a_clear_error(kind: type[Proxy], answer: bytes, words: str, plain: Any) -> None:
    with kind(answer=answer) as proxy:
        with pytest.raises(ConnectionFailed, match=words) as caught:
            talk(f"ws://127.0.0.1:{plain.port}/", proxy=proxy.url(), timeout=30)
        assert caught.value.status == blip.Status.PROXY
        assert str(caught.value).count(f"127.0.0.1:{proxy.port}") == 1


@pytest.mark.parametrize("answer", [b"", b"HTTP/1.1 20", b"\x05"])
def test_a_silent_proxy_is_given_up(answer: bytes, plain: Any) -> None:
    kind = SocksProxy if answer == b"\x05" else Proxy
    with kind(answer=answer) as proxy:
        with pytest.raises(blip.TimeoutError, match=f"negotiation with the proxy .*{proxy.port}"):
            talk(f"ws://127.0.0.1:{plain.port}/", proxy=proxy.url(), timeout=0.3)


def test_a_proxy_that_is_not_there(plain: Any) -> None:
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        with pytest.raises(ConnectionFailed, match="proxy .* cannot be reached.*refused"):
            talk(f"ws://127.0.0.1:{plain.port}/", proxy=f"http://127.0.0.1:{unused.getsockname()[1]}")


def test_the_environment(plain: Any) -> None:
    script = """
import blip.sync, sys
with blip.sync.connect(sys.argv[1] if len(sys.argv) > 1 else "{url}", proxy_from_environment=True) as connection:
    print(bytes(connection.request("echo", b"through").body).decode())
"""
    url = f"ws://127.0.0.1:{plain.port}/"
    with Proxy() as proxy:
        for variables, uses in (
            ({"http_proxy": proxy.url()}, True),
            ({"ws_proxy": f"127.0.0.1:{proxy.port}"}, True),
            ({"ALL_PROXY": proxy.url()}, True),
            ({"HTTP_PROXY": proxy.url()}, False),
            ({"https_proxy": proxy.url()}, False),
            ({"http_proxy": proxy.url(), "no_proxy": "example.com, 127.0.0.0/8"}, False),
            ({"http_proxy": proxy.url(), "NO_PROXY": "*"}, False),
        ):
            before = len(proxy.seen)
            clean = {name: "" for name in ("http_proxy", "all_proxy", "ALL_PROXY", "no_proxy", "NO_PROXY")}
            result = run_script(script.format(url=url), environment={**clean, **variables})
            assert result.stdout == "through\n", result.stderr
            assert (len(proxy.seen) > before) == uses, variables


def test_urls_that_are_no_proxys() -> None:
    for url in ("ftp://x", "http://", "http://x/path", "socks5://a:b:c@", "http://x:99999"):
        with pytest.raises(blip.Error):
            blip.sync.connect("ws://127.0.0.1:1/", proxy=url)


def test_local_address_and_family(plain: Any) -> None:
    with blip.sync.connect(f"ws://127.0.0.1:{plain.port}/", local_address=("127.0.0.9", 0)) as connection:
        assert connection.local_address.startswith("127.0.0.9:")
    with blip.sync.connect(f"ws://127.0.0.1:{plain.port}/", local_address=("lo", 0)) as connection:
        assert connection.local_address.startswith("127.0.0.1:")
    with pytest.raises(ConnectionFailed, match="IPv6"):
        blip.sync.connect(f"ws://127.0.0.1:{plain.port}/", ip="only6")
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        port = unused.getsockname()[1]
    with blip.sync.connect(f"ws://127.0.0.1:{plain.port}/", local_address=("127.0.0.1", port)) as connection:
        assert connection.local_address == f"127.0.0.1:{port}"
    with pytest.raises(ConnectionFailed):
        blip.sync.connect(f"ws://127.0.0.1:{plain.port}/", local_address=("192.0.2.1", 0))
