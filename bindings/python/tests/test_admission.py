"""Who is let in by a listener: users, web pages, the program's choice; and requests that two programs could read in
two ways."""

from __future__ import annotations

import asyncio
import base64
import hashlib
import re
import socket
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Iterator

import pytest
from conftest import run

import blip
import blip.sync
from blip.errors import ConnectionFailed, UsageError

USERS = {"me": "s3cr3t", "j\u00fcrgen": "p\u00e4ss:w\u00f6rd"}


@pytest.fixture(scope="module")
def guarded() -> Iterator[blip.sync.Listener]:
    hashes = {"hashed": blip.hash_password("one way")}
    listener = blip.sync.serve("127.0.0.1", 0, users=USERS, user_hashes=hashes, realm='the "realm"', metrics_path="/m")
    with listener:
        listener.on_connect(lambda connection: seen.append(connection.user))
        yield listener


seen: list[Any] = []


def upgrade_head(port: int, *lines: str, target: str = "/") -> bytes:
    return (
        f"GET {target} HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n"
        "Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\nSec-WebSocket-Protocol: BLIP_3\r\n"
        + "".join(line + "\r\n" for line in lines)
        + "\r\n"
    ).encode()


def ask(port: int, request: bytes) -> bytes:
    """The answer, up to the end of the connection; after an upgrade, its head."""
    with socket.create_connection(("127.0.0.1", port), 30) as peer:
        peer.sendall(request)
        data = b""
        while True:
            try:
                more = peer.recv(65536)
            except ConnectionResetError:
                return data
            data += more
            if not more or (data.startswith(b"HTTP/1.1 101") and data.endswith(b"\r\n\r\n")):
                return data


def status(answer: bytes) -> int:
    return int(answer[9:12] or 0) if answer else 0


def basic(pair: str) -> str:
    return "Authorization: Basic " + base64.b64encode(pair.encode()).decode()


# Users


@pytest.mark.parametrize("user", [*USERS, "hashed"])
def test_users(user: str, guarded: Any) -> None:
    password = USERS.get(user, "one way")
    for _ in range(2):
        seen.clear()
        with blip.sync.connect(guarded.url, credentials=(user, password)) as connection:
            assert connection.is_open
        assert seen == [user]
    with pytest.raises(ConnectionFailed, match="refuses the user name or password"):
        blip.sync.connect(guarded.url, credentials=(user, password + "x"))


def test_unknown_users(guarded: Any) -> None:
    for given in (("nobody", "s3cr3t"), ("", "s3cr3t"), ("me", ""), ("ME", "s3cr3t")):
        with pytest.raises(ConnectionFailed, match="refuses"):
            blip.sync.connect(guarded.url, credentials=given)
    with pytest.raises(ConnectionFailed, match="none was given"):
        blip.sync.connect(guarded.url)


@pytest.mark.parametrize(
    "line",
    [
        "X: y", "Authorization: Basic", "Authorization: Basic !!!!", "Authorization: Basic YQ==", "Authorization: x y z",
        "Authorization: Bearer s3cr3t", basic("me:s3cr3t") + "\r\n" + basic("me:s3cr3t"), basic("me:s3cr3t") + ", Basic YTpi",
        'Authorization: Digest username="me", realm="r", nonce="n", uri="/", response="x"', basic("me"),
        "Authorization: " + "x" * 8000,
    ],
)  # fmt: skip
def test_bad_credentials(line: str, guarded: Any) -> None:
    answer = ask(guarded.port, upgrade_head(guarded.port, line))
    assert status(answer) == 401
    assert b'WWW-Authenticate: Basic realm="the \\"realm\\"", charset="UTF-8"\r\n' in answer
    assert b"Connection: close" in answer


def test_the_rest_of_the_port_is_guarded_too(guarded: Any) -> None:
    get = f"GET /m HTTP/1.1\r\nHost: 127.0.0.1:{guarded.port}\r\n%s\r\n"
    assert status(ask(guarded.port, (get % "").encode())) == 401
    assert status(ask(guarded.port, (get % (basic("me:s3cr3t") + "\r\n")).encode())) == 200


def test_blip1_has_no_users() -> None:
    with blip.sync.serve("127.0.0.1", 0, users={"me": "x"}, blip1=True) as listener:
        with blip.sync.connect(f"blip://127.0.0.1:{listener.port}") as connection:
            with pytest.raises(blip.Error):
                connection.request("x", timeout=20)


def test_a_flood_of_wrong_passwords_stalls_nobody(guarded: Any) -> None:
    blip.sync.connect(guarded.url, credentials=("me", "s3cr3t")).close()
    stop = threading.Event()
    statuses: set[int] = set()

    def flood(number: int) -> None:
        while not stop.is_set():
            statuses.add(status(ask(guarded.port, upgrade_head(guarded.port, basic(f"me:wrong{number}")))))

    with blip.sync.serve("127.0.0.1", 0, handlers={"echo": lambda request: bytes(request.body)}) as other:
        with blip.sync.connect(other.url) as bystander, ThreadPoolExecutor(96) as threads:
            for number in range(96):
                threads.submit(flood, number)
            try:
                deadline = time.monotonic() + 60
                while statuses != {401, 503} and time.monotonic() < deadline:
                    # Who is known is let in at once, and others talk on.
                    blip.sync.connect(guarded.url, credentials=("me", "s3cr3t"), timeout=60).close()
                    assert bytes(bystander.request("echo", b"x", timeout=60).body) == b"x"
            finally:
                stop.set()
        assert statuses == {401, 503}


def test_a_flood_at_one_listener_leaves_another_alone(guarded: Any) -> None:
    stop = threading.Event()
    refused = threading.Event()

    def flood(number: int) -> None:
        while not stop.is_set():
            if status(ask(guarded.port, upgrade_head(guarded.port, basic(f"me:wrong{number}")))) == 503:
                refused.set()

    with blip.sync.serve("127.0.0.1", 0, users={"you": "w0rd"}) as other, ThreadPoolExecutor(96) as threads:
        for number in range(96):
            threads.submit(flood, number)
        try:
            assert refused.wait(60)
            # Nobody is remembered here: each of these is compared, and does not wait for all of the flood.
            for number in range(5):
                begin = time.monotonic()
                assert status(ask(other.port, upgrade_head(other.port, basic(f"you:wrong{number}")))) == 401
                assert time.monotonic() - begin < 20
            assert status(ask(other.port, upgrade_head(other.port, basic("you:w0rd")))) == 101
        finally:
            stop.set()


def test_options_of_users() -> None:
    for given in ({"a:b": "c"}, {"": "c"}, {"a\nb": "c"}, {"a": "c\n"}):
        with pytest.raises(UsageError):
            blip.sync.serve("127.0.0.1", 0, users=given)
    for hashed in ("", "plain", "$scrypt$ln=30,r=8,p=1$MTIzNDU2Nzg5MDEyMzQ1Ng$MTIzNDU2Nzg5MDEyMzQ1Ng"):
        with pytest.raises(UsageError):
            blip.sync.serve("127.0.0.1", 0, user_hashes={"a": hashed})
    one, two = blip.hash_password("x"), blip.hash_password("x")
    assert one != two and one.startswith("$scrypt$ln=14,r=8,p=1$")
    salt, key = (base64.b64decode(part + "==="[: -len(part) % 4]) for part in one.split("$")[3:])
    assert hashlib.scrypt(b"x", salt=salt, n=1 << 14, r=8, p=1, dklen=len(key)) == key


# Web pages


def test_origins() -> None:
    def answers(listener: Any, *origins: str) -> int:
        return status(ask(listener.port, upgrade_head(listener.port, *(f"Origin: {origin}" for origin in origins))))

    with blip.sync.serve("127.0.0.1", 0) as listener:
        assert answers(listener) == 101
        assert answers(listener, f"http://127.0.0.1:{listener.port}") == 101
        for bad in ("http://evil.example", "null", "", f"http://localhost:{listener.port}", "http://127.0.0.1"):
            assert answers(listener, bad) == 403, bad
    with blip.sync.serve("127.0.0.1", 0, origins=["https://app.example", "http://localhost:3000"]) as listener:
        assert answers(listener) == 101
        assert answers(listener, "https://app.example") == 101
        assert answers(listener, "https://app.example", "https://app.example") == 403
        assert answers(listener, f"http://127.0.0.1:{listener.port}") == 403
    with blip.sync.serve("127.0.0.1", 0, origins="*") as listener:
        assert answers(listener, "null") == 101
    with pytest.raises(UsageError):
        blip.sync.serve("127.0.0.1", 0, origins="not an origin")


def test_hosts() -> None:
    """What a page of the listener's own port is, goes by its name too."""

    def answers(listener: Any, host: str, *more: str) -> int:
        head = upgrade_head(listener.port, f"Origin: http://{host}", *more)
        return status(ask(listener.port, head.replace(f"Host: 127.0.0.1:{listener.port}".encode(), f"Host: {host}".encode())))

    with blip.sync.serve("127.0.0.1", 0) as listener:
        assert answers(listener, "localhost:1") == 101
        assert answers(listener, "evil.example") == 403
    with blip.sync.serve("127.0.0.1", 0, hosts=["app.example"]) as listener:
        assert answers(listener, "app.example") == 101
        assert answers(listener, "evil.example") == 403
    with blip.sync.serve("127.0.0.1", 0, hosts="*") as listener:
        assert answers(listener, "evil.example") == 101
    with blip.sync.serve("127.0.0.1", 0, users={"you": "w0rd"}) as listener:
        assert answers(listener, "evil.example") == 401
        assert answers(listener, "evil.example", basic("you:w0rd")) == 101
    with pytest.raises(UsageError):
        blip.sync.serve("127.0.0.1", 0, hosts="app.example:80")


# The program's choice


def test_program_rejects_and_names() -> None:
    with blip.sync.serve("127.0.0.1", 0) as listener:

        @listener.on_connect
        def look(connection: Any) -> None:
            if connection.credentials == ("bearer", None, "s3cr3t"):
                connection.accept("the bearer")
                with pytest.raises(blip.Error):
                    connection.reject()
            elif connection.credentials == ("basic", "me", "s3cr3t") and connection.check_password("s3cr3t"):
                assert not connection.check_password("s3cr3T")
            else:
                assert not connection.check_password("") or connection.credentials
                connection.reject(401, "who are you?", {"WWW-Authenticate": "Bearer, Basic realm=r", "X-Why": "not"})

        with blip.sync.connect(listener.url, token="s3cr3t"):
            (accepted,) = listener.connections
            assert accepted.user == "the bearer"
        blip.sync.connect(listener.url, credentials=("me", "s3cr3t")).close()
        answer = ask(listener.port, upgrade_head(listener.port))
        assert status(answer) == 401
        assert b"X-Why: not\r\n" in answer and b"who are you?" in answer
        with pytest.raises(ConnectionFailed, match="refuses"):
            blip.sync.connect(listener.url, credentials=("me", "wrong"))


def test_program_decides_later() -> None:
    async def main() -> None:
        async with blip.serve("127.0.0.1", 0, handshake_timeout=60) as listener:

            @listener.on_connect
            def look(connection: Any) -> None:
                connection.defer_accept()
                asyncio.get_running_loop().call_later(0.05, decide, connection)

            def decide(connection: Any) -> None:
                if connection.credentials:
                    connection.accept("later")
                else:
                    connection.reject(429, "too many")

            async with blip.connect(listener.url, token="x") as connection:
                assert connection.is_open
                assert [one.user for one in listener.connections] == ["later"]
            with pytest.raises(ConnectionFailed) as caught:
                await blip.connect(listener.url)
            assert caught.value.code == 429

    run(main())


def test_program_never_decides() -> None:
    with blip.sync.serve("127.0.0.1", 0, handshake_timeout=0.3) as listener:
        listener.on_connect(lambda connection: connection.defer_accept())
        with pytest.raises(ConnectionFailed):
            blip.sync.connect(listener.url, timeout=30)


def test_digest_by_the_program() -> None:
    with blip.sync.serve("127.0.0.1", 0) as listener:

        @listener.on_connect
        def look(connection: Any) -> None:
            if connection.credential("nonce") == "mine" and connection.check_password("s3cr3t"):
                connection.accept(connection.credentials[1])
            else:
                challenge = 'Digest realm="r", nonce="mine", qop="auth", algorithm=SHA-256'
                connection.reject(401, "", {"WWW-Authenticate": challenge})

        for preemptive in (True, False):
            with blip.sync.connect(listener.url, credentials=("m\u00e9", "s3cr3t"), preemptive=preemptive):
                # The first one, which was sent back, may not be gone yet.
                assert "m\u00e9" in [one.user for one in listener.connections]
        with pytest.raises(ConnectionFailed, match="refuses"):
            blip.sync.connect(listener.url, credentials=("m\u00e9", "wrong"))


# Requests that could be read in two ways

HOST = "Host: h"
REST = (
    "Connection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\n"
    "Sec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\nSec-WebSocket-Protocol: BLIP_3\r\n"
)
NEXT = "GET /hidden HTTP/1.1\r\nHost: h\r\n\r\n"


def get(line: str = "GET / HTTP/1.1", host: str = HOST, extra: str = "", rest: str = REST, tail: str = "") -> str:
    return f"{line}\r\n{host}\r\n{extra}{rest}\r\n{tail}"


SHAPES = [
    ("length and coding", get(extra="Content-Length: 4\r\nTransfer-Encoding: chunked\r\n", tail="0\r\n\r\n"), 400),
    ("coding and length", get(extra="Transfer-Encoding: chunked\r\nContent-Length: 4\r\n", tail="0\r\n\r\n"), 400),
    ("body on GET", get(extra="Content-Length: 4\r\n", tail="body"), 400),
    ("chunked body on GET", get(extra="Transfer-Encoding: chunked\r\n", tail="0\r\n\r\n"), 400),
    ("two lengths that differ", get(extra="Content-Length: 4\r\nContent-Length: 5\r\n", tail="body"), 400),
    ("two lengths that agree", get(extra="Content-Length: 0\r\nContent-Length: 0\r\n"), 400),
    ("a list of lengths", get(extra="Content-Length: 0, 0\r\n"), 400),
    ("length with a sign", get(extra="Content-Length: +4\r\n", tail="body"), 400),
    ("negative length", get(extra="Content-Length: -1\r\n"), 400),
    ("hexadecimal length", get(extra="Content-Length: 0x4\r\n", tail="body"), 400),
    ("empty length", get(extra="Content-Length:\r\n"), 400),
    ("huge length", get(extra="Content-Length: 99999999999999999999\r\n"), 400),
    ("length with a space in it", get(extra="Content-Length: 1 0\r\n"), 400),
    ("unknown coding", get(extra="Transfer-Encoding: xchunked\r\n"), 400),
    ("coding twice", get(extra="Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n"), 400),
    ("chunked and identity", get(extra="Transfer-Encoding: chunked, identity\r\n"), 400),
    ("coding with a vertical tab", get(extra="Transfer-Encoding: \x0bchunked\r\n"), 400),
    ("empty coding", get(extra="Transfer-Encoding:\r\n"), 400),
    ("space before the colon", get(extra="Content-Length : 4\r\n"), 400),
    ("tab before the colon", get(extra="X\t: y\r\n"), 400),
    ("folded line", get(extra="X: y\r\n z\r\n"), 400),
    ("folded line with a tab", get(extra="X: y\r\n\tz\r\n"), 400),
    ("folded first line", "GET / HTTP/1.1\r\n X: y\r\n" + get()[16:], 400),
    ("bare line feed", get(extra="X: y\nZ: a\r\n"), 400),
    ("line feeds only", get().replace("\r\n", "\n"), 400),
    ("bare carriage return", get(extra="X: y\rZ: a\r\n"), 400),
    ("carriage return twice", get(extra="X: y\r\r\n"), 400),
    ("NUL in a value", get(extra="X: a\x00b\r\n"), 400),
    ("NUL in a name", get(extra="X\x00Y: a\r\n"), 400),
    ("control character in a value", get(extra="X: a\x01b\r\n"), 400),
    ("DEL in a value", get(extra="X: a\x7fb\r\n"), 400),
    ("name with a space", get(extra="X Y: a\r\n"), 400),
    ("name with a bracket", get(extra="X(Y): a\r\n"), 400),
    ("empty name", get(extra=": a\r\n"), 400),
    ("line without a colon", get(extra="nothing\r\n"), 400),
    ("two hosts", get(extra="Host: other\r\n"), 400),
    ("two equal hosts", get(extra="host: h\r\n"), 400),
    ("no host", get(host="X: y"), 400),
    ("host with a path", get(host="Host: h/x"), 400),
    ("host with a user", get(host="Host: u@h"), 400),
    ("host with a comma", get(host="Host: h, other"), 400),
    ("host with a space", get(host="Host: h other"), 400),
    ("empty line in front", "\r\n" + get(), 400),
    ("space in front", " " + get(), 400),
    ("two spaces in the first line", get("GET  / HTTP/1.1"), 400),
    ("tab in the first line", get("GET\t/ HTTP/1.1"), 400),
    ("three words and one more", get("GET / x HTTP/1.1"), 400),
    ("space behind the version", get("GET / HTTP/1.1 "), 400),
    ("no version", get("GET /"), 400),
    ("version in small letters", get("GET / http/1.1"), 400),
    ("version 1.2", get("GET / HTTP/1.2"), 505),
    ("version 2.0", get("GET / HTTP/2.0"), 505),
    ("version 01.1", get("GET / HTTP/01.1"), 505),
    ("version 1.1 and more", get("GET / HTTP/1.1.1"), 505),
    ("version 1.0", get("GET / HTTP/1.0"), 426),
    ("version 1.0 with a coding", get("GET / HTTP/1.0", extra="Transfer-Encoding: chunked\r\n"), 400),
    ("version 0.9", "GET /\r\n\r\n", 400),
    ("the preface of HTTP/2", "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", 505),
    ("target without a slash", get("GET x HTTP/1.1"), 400),
    ("target with a fragment", get("GET /#x HTTP/1.1"), 400),
    ("target beyond ASCII", get("GET /\u00fc HTTP/1.1"), 400),
    ("target of nothing but a scheme", get("GET http:// HTTP/1.1"), 400),
    ("target with a backslash scheme", get("GET http:\\\\h/ HTTP/1.1"), 400),
    ("asterisk", get("GET * HTTP/1.1"), 400),
    ("CONNECT", get("CONNECT h:80 HTTP/1.1"), 405),
    ("POST", get("POST / HTTP/1.1"), 405),
    ("POST with a body", get("POST / HTTP/1.1", extra="Content-Length: 4\r\n", tail="body"), 400),
    ("get in small letters", get("get / HTTP/1.1"), 405),
    ("method with a bracket", get("G(T / HTTP/1.1"), 400),
    ("no upgrade", get(rest=""), 426),
    ("upgrade to another protocol", get(rest=REST.replace("websocket", "h2c")), 426),
    ("upgrade without Connection", get(rest=REST.replace("Connection: Upgrade", "Connection: close")), 426),
    ("two keys", get(extra="Sec-WebSocket-Key: BBBBBBBBBBBBBBBBBBBBBA==\r\n"), 400),
    ("a key that is too short", get(rest=REST.replace("AAAAAAAA==", "AA==")), 400),
    ("two versions", get(extra="Sec-WebSocket-Version: 8\r\n"), 426),
    ("a list of versions", get(rest=REST.replace(": 13", ": 13, 8")), 426),
    ("TLS", "\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + "\x00" * 300, 400),
    ("too many lines", get(extra="A: b\r\n" * 101), 431),
    ("too large", get(extra="A: " + "b" * 17000 + "\r\n"), 431),
]  # fmt: skip


@pytest.fixture(scope="module")
def listener() -> Iterator[blip.sync.Listener]:
    with blip.sync.serve("127.0.0.1", 0) as one:
        yield one


@pytest.mark.parametrize(("request_text", "expected"), [shape[1:] for shape in SHAPES], ids=[shape[0] for shape in SHAPES])
def test_shapes(request_text: str, expected: int, listener: Any) -> None:
    # Behind it another request: whoever reads on would answer twice.
    answer = ask(listener.port, request_text.encode("latin-1" if "\x16" in request_text else "utf-8") + NEXT.encode())
    assert status(answer) == expected
    assert answer.count(b"HTTP/1.1 ") == 1
    assert re.search(rb"(?i)\r\nconnection: (upgrade, )?close\r\n", answer)
    assert b"hidden" not in answer


@pytest.mark.parametrize("target", ["http://h/", "ws://h/x?y", "http://other.example/"])
def test_absolute_targets(target: str, listener: Any) -> None:
    """They are to be understood (RFC 9112 section 3.2.2); only the path counts."""
    assert status(ask(listener.port, get(f"GET {target} HTTP/1.1").encode())) == 101


def test_what_follows_an_upgrade_is_frames(listener: Any) -> None:
    """A request behind the head is not answered: it is no frame, and ends the connection with 1002."""
    with socket.create_connection(("127.0.0.1", listener.port), 30) as peer:
        peer.sendall((get() + NEXT).encode())
        data = b""
        while more := peer.recv(65536):
            data += more
    head, rest = data.split(b"\r\n\r\n", 1)
    assert head.startswith(b"HTTP/1.1 101") and rest[:1] == b"\x88" and rest[2:4] == (1002).to_bytes(2, "big")
    assert b"HTTP" not in rest
