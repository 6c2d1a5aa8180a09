"""The client's way to an open connection: challenges, redirects, cookies."""

from __future__ import annotations

import asyncio
import base64
import hashlib
import re
import threading
import time
from typing import Any, Iterator

import pytest
from conftest import run
from sites import Site, answer, header, upgrade

import blip
import blip.sync
from blip.errors import ConnectionFailed, UsageError

BASIC = 'WWW-Authenticate: Basic realm="blips"'
PAIR = "Basic " + base64.b64encode(b"me:s3cr3t").decode()


@pytest.fixture(autouse=True)
def no_cookies() -> Iterator[None]:
    yield
    blip.clear_cookies()


def opens(url: str, **options: Any) -> None:
    connection = blip.sync.connect(url, close_timeout=0.2, **options)
    assert connection.is_open
    connection.close()


def fails(url: str, words: str, code: int = 401, **options: Any) -> str:
    with pytest.raises(ConnectionFailed, match=words) as caught:
        opens(url, **options)
    assert caught.value.code == code
    assert "s3cr3t" not in str(caught.value)
    return str(caught.value)


def wants(value: str, *lines: str) -> Any:
    """Asks until Authorization has that value."""
    return lambda head: upgrade(head) if header(head, "Authorization") == value else answer(401, *(lines or (BASIC,)))


# Basic and tokens


def test_password_goes_out_at_once() -> None:
    with Site(wants(PAIR)) as site:
        opens(site.url(), credentials=("me", "s3cr3t"))
        opens(site.url(user="me:s3cr3t@"))
        opens(site.url(user="me:s3cr3t@"), credentials=("other", "one"))
        assert len(site.heads) == 3


def test_password_waits_for_the_challenge() -> None:
    with Site(wants(PAIR)) as site:
        opens(site.url(), credentials=("me", "s3cr3t"), preemptive=False)
        assert [header(head, "Authorization") for head in site.heads] == [None, PAIR]
        assert site.connections == 1


@pytest.mark.parametrize(
    ("refusal", "connections"),
    [
        (answer(401, BASIC, body="no entry"), 1),
        (answer(401, BASIC, "Transfer-Encoding: chunked", body="3;x=y\r\nno \r\n5\r\nentry\r\n0\r\nA: b\r\n\r\n"), 1),
        (answer(401, BASIC, "Connection: close", body="no entry"), 2),
        (answer(401, BASIC, "Content-Length: 100000", body="x" * 100000), 2),
        (answer(401, BASIC, "Transfer-Encoding: chunked", body="zz\r\n"), 2),
        # What stands behind the body might be taken for the answer to the next request.
        (answer(401, BASIC, body="no") + b"HTTP/1.1 403 Forbidden\r\nContent-Length: 0\r\n\r\n", 2),
        (b"HTTP/1.0 401 No\r\n" + BASIC.encode() + b"\r\n\r\n", 2),
    ],
)
def test_bodies_of_refusals(refusal: bytes, connections: int) -> None:
    with Site(lambda head: upgrade(head) if header(head, "Authorization") else refusal) as site:
        opens(site.url(), credentials=("me", "s3cr3t"), preemptive=False)
        assert site.connections == connections
        assert len(site.heads) == 2


def test_body_that_comes_slowly() -> None:
    def script(head: bytes) -> Any:
        if header(head, "Authorization"):
            return upgrade(head)
        peer = site.open[-1]
        for byte in answer(401, BASIC, body="no entry"):
            peer.sendall(bytes([byte]))
            time.sleep(0.001)
        return b""

    with Site(script) as site:
        opens(site.url(), credentials=("me", "s3cr3t"), preemptive=False)
        assert site.connections == 1


def test_body_that_never_ends() -> None:
    with Site(lambda head: answer(401, BASIC, "Content-Length: 100", body="x")) as site:
        with pytest.raises(blip.ConnectTimedOut):
            opens(site.url(), credentials=("me", "s3cr3t"), preemptive=False, timeout=0.3)


def test_server_that_ends_an_idle_connection() -> None:
    def script(head: bytes) -> Any:
        if not header(head, "Authorization"):
            return answer(401, BASIC)
        return upgrade(head) if len(site.heads) == 3 else None

    with Site(script) as site:
        opens(site.url(), credentials=("me", "s3cr3t"), preemptive=False)
        assert site.connections == 2


def test_wrong_password() -> None:
    with Site(wants("never")) as site:
        fails(site.url(user="me:s3cr3t@"), "refuses the user name or password")
        assert len(site.heads) == 1
        fails(site.url(), "asks for authentication")


def test_tokens() -> None:
    with Site(wants("Bearer s3cr3t.x", "WWW-Authenticate: Bearer")) as site:
        opens(site.url(), token="s3cr3t.x")
        fails(site.url(), "refuses the token", token="s3cr3t.y")
    with pytest.raises(UsageError):
        opens("ws://localhost/", token="s3cr3t x")
    with pytest.raises(UsageError):
        opens("ws://localhost/", credentials=("a:b", "c"))


def test_header_of_the_program() -> None:
    with Site(wants("Own s3cr3t")) as site:
        opens(site.url(), headers={"Authorization": "Own s3cr3t"})
        fails(site.url(), "asks for authentication", headers={"Authorization": "Own wrong"})
    with Site(wants(PAIR)) as site:
        opens(site.url(), headers={"Authorization": "Own wrong"}, credentials=("me", "s3cr3t"))
        assert len(site.heads) == 2


@pytest.mark.parametrize(
    ("lines", "words"),
    [
        (("X: y",), "does not say how"),
        (('WWW-Authenticate: Basic realm="',), "cannot be read: a quoted text without an end"),
        (("WWW-Authenticate: ,,",), "cannot be read"),
        (("WWW-Authenticate: Basic a b",), "cannot be read"),
        (("WWW-Authenticate: " + "A," * 20,), "more than 16 challenges"),
        (("WWW-Authenticate: Digest realm=r",), "Digest without a nonce"),
        (("WWW-Authenticate: Digest realm=r, nonce=n, qop=auth-int",), "only qop=auth"),
        (("WWW-Authenticate: Digest realm=r, nonce=n, algorithm=X",), "algorithm"),
        (("WWW-Authenticate: Negotiate",), "negotiate"),
    ],
)
def test_bad_challenges(lines: tuple[str, ...], words: str) -> None:
    with Site(lambda head: answer(401, *lines)) as site:
        fails(site.url(), words, credentials=("me", "s3cr3t"))


# Digest


class DigestSite(Site):
    """Checks answers with an implementation of its own."""

    def __init__(self, algorithm: str, *, quality: str = 'qop="auth, auth-int", ', stale: int = 0) -> None:
        self.name = algorithm
        self.quality = quality
        self.stale = stale
        self.nonces = 0
        super().__init__(self.look)

    def hash(self, *parts: str) -> str:
        kind = "md5" if self.name.startswith("MD5") else "sha256"
        return hashlib.new(kind, ":".join(parts).encode()).hexdigest()

    def challenge(self, stale: bool) -> bytes:
        self.nonces += 1
        text = f'Digest realm="a \\"b\\"", {self.quality}nonce="n{self.nonces}", opaque="o", algorithm={self.name}'
        return answer(401, BASIC, f"WWW-Authenticate: {text}{', stale=true' if stale else ''}", body="x")

    def look(self, head: bytes) -> bytes:
        value = header(head, "Authorization") or ""
        if not value.startswith("Digest "):
            return self.challenge(False)
        given = {name: quoted or plain for name, quoted, plain in re.findall(r'(\w+)=(?:"((?:[^"\\]|\\.)*)"|([^ ,]+))', value)}
        if self.stale:
            self.stale -= 1
            return self.challenge(True)
        target = head.split(b" ")[1].decode()
        secret = self.hash("me", 'a "b"', "s3cr3t")
        if self.name.endswith("-sess"):
            secret = self.hash(secret, given["nonce"], given["cnonce"])
        middle = [given["nc"], given["cnonce"], "auth"] if self.quality else []
        expected = self.hash(secret, given["nonce"], *middle, self.hash("GET", target))
        good = given["response"] == expected and given["uri"] == target and given["opaque"] == "o"
        good = good and given["nonce"] == f"n{self.nonces}" and given.get("nc", "00000001") == "00000001"
        return upgrade(head) if good else self.challenge(False)


@pytest.mark.parametrize("algorithm", ["MD5", "MD5-sess", "SHA-256", "SHA-256-sess"])
def test_digest(algorithm: str) -> None:
    with DigestSite(algorithm) as site:
        opens(site.url("/db/x?y=1"), credentials=("me", "s3cr3t"), preemptive=False)
        assert PAIR.encode() not in b"".join(site.heads)
        opens(site.url(), credentials=("me", "s3cr3t"))
        fails(site.url(), "refuses the user name or password", credentials=("me", "wrong"))


def test_digest_of_old_servers() -> None:
    with DigestSite("MD5", quality="") as site:
        opens(site.url(), credentials=("me", "s3cr3t"))


def test_stale_nonces() -> None:
    with DigestSite("SHA-256", stale=3) as site:
        opens(site.url(), credentials=("me", "s3cr3t"))
    with DigestSite("SHA-256", stale=100) as site:
        fails(site.url(), "refuses", credentials=("me", "s3cr3t"))
        assert len(site.heads) < 8


# Challenges to the program


def test_program_is_asked() -> None:
    seen = []

    def ask(challenge: blip.Challenge) -> Any:
        seen.append((challenge.host, challenge.is_proxy, challenge.attempts, challenge.schemes, challenge.realm))
        assert challenge.parameter("nothing") is None
        return ("me", "wrong" if challenge.attempts == 1 else "s3cr3t")

    with Site(wants(PAIR, "WWW-Authenticate: Newauth a=b, Basic realm=blips")) as site:
        opens(site.url(), on_challenge=ask)
        host = f"127.0.0.1:{site.port}"
        assert seen == [(host, False, number, ["newauth", "basic"], "blips") for number in (1, 2)]
        assert site.connections == 1


def test_program_answers_later_from_another_thread() -> None:
    def ask(challenge: blip.Challenge) -> None:
        def later() -> None:
            challenge.answer_token("s3cr3t")
            with pytest.raises(blip.Error):
                challenge.cancel()

        threading.Timer(0.5, later).start()

    with Site(wants("Bearer s3cr3t", "WWW-Authenticate: Bearer")) as site:
        # The time that the program takes does not count.
        opens(site.url(), on_challenge=ask, timeout=0.4)
        assert site.connections == 1


def test_server_leaves_while_the_program_thinks() -> None:
    def ask(challenge: blip.Challenge) -> None:
        threading.Timer(0.2, lambda: challenge.answer_password("me", "s3cr3t")).start()

    def script(head: bytes) -> bytes:
        if header(head, "Authorization") == PAIR:
            return upgrade(head)
        return answer(401, BASIC, "Connection: close")

    with Site(script) as site:
        opens(site.url(), on_challenge=ask)
        assert site.connections == 2


def test_program_gives_up() -> None:
    with Site(wants(PAIR)) as site:
        fails(site.url(), "asks for authentication", on_challenge=lambda challenge: challenge.cancel())
        fails(site.url(), "asks for authentication", on_challenge=lambda challenge: None)

        def broken(challenge: blip.Challenge) -> None:
            raise RuntimeError("no")

        fails(site.url(), "asks for authentication", on_challenge=broken)
        # Nobody takes an endless dialogue.
        fails(site.url(), "refuses", on_challenge=lambda challenge: ("me", f"s3cr3t{challenge.attempts}"))
        assert len(site.heads) == 3 + 21


def test_scheme_of_the_programs_own() -> None:
    """Three rounds, over one byte stream."""

    def script(head: bytes) -> bytes:
        value = header(head, "Authorization")
        rounds = {None: "", "Rounds aaa": " bbb", "Rounds bbbccc": " ddd=="}
        if value == "Rounds ddd==eee":
            return upgrade(head)
        return answer(401, "WWW-Authenticate: Rounds" + rounds[value], body="more")

    def ask(challenge: blip.Challenge) -> None:
        token = challenge.parameter("")
        challenge.answer_header("Rounds " + {None: "aaa", "bbb": "bbbccc", "ddd==": "ddd==eee"}[token])

    with Site(script) as site:
        opens(site.url(), on_challenge=ask)
        assert site.connections == 1
        assert len(site.heads) == 4


def test_close_while_the_program_thinks() -> None:
    kept = []

    async def main() -> None:
        def ask(challenge: blip.Challenge) -> None:
            kept.append(challenge)
            waiting.set()

        waiting = asyncio.Event()
        task = asyncio.ensure_future(blip.connect(site.url(), on_challenge=ask)._connect())
        await waiting.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    with Site(wants(PAIR)) as site:
        run(main())
        deadline = time.monotonic() + 30
        while True:
            try:
                kept[0].answer_password("me", "s3cr3t")
            except blip.Error:
                break
            assert time.monotonic() < deadline
        assert len(site.heads) == 1


def test_asyncio() -> None:
    async def main() -> None:
        async def ask(challenge: blip.Challenge) -> Any:
            await asyncio.sleep(0.01)
            return ("me", "s3cr3t")

        async with blip.connect(site.url(), on_challenge=ask) as connection:
            assert connection.is_open
        async with blip.connect(site.url(), credentials=("me", "s3cr3t")) as connection:
            assert connection.is_open

    with Site(wants(PAIR)) as site:
        run(main())


# Redirects


@pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
@pytest.mark.parametrize("location", ["/there?x=1", "../there?x=1", "there?x=1", "//127.0.0.1:{port}/there?x=1", "http://127.0.0.1:{port}/there?x=1#f"])
def test_redirects(status: int, location: str) -> None:
    def script(head: bytes) -> bytes:
        if head.startswith(b"GET /there?x=1 "):
            return upgrade(head)
        return answer(status, "Location: " + location.format(port=site.port), body="gone")

    with Site(script) as site:
        opens(site.url("/here"), credentials=("me", "s3cr3t"))
        assert [header(head, "Authorization") for head in site.heads] == [PAIR, PAIR]


def test_secrets_stay_at_home() -> None:
    with Site(upgrade) as other, Site(lambda head: answer(302, f"Location: {other.url('/x')}")) as site:
        headers = {"Authorization": "Own s3cr3t", "Cookie": "a=s3cr3t", "X-Mine": "1", "Host": "mine"}
        opens(site.url(), headers=headers)
        opens(site.url(user="me:s3cr3t@"))
        opens(site.url(), token="s3cr3t")
        assert all(b"s3cr3t" in head or PAIR.encode() in head for head in site.heads)
        assert b"s3cr3t" not in b"".join(other.heads)
        assert header(other.heads[0], "X-Mine") == "1"
        assert header(other.heads[0], "Host") == f"127.0.0.1:{other.port}"


def test_other_origins_are_told_apart() -> None:
    """A password for one origin does not answer the challenge of another; the program may."""
    asked = []

    def ask(challenge: blip.Challenge) -> Any:
        asked.append(challenge.host)
        return ("you", "yours")

    pair = "Basic " + base64.b64encode(b"you:yours").decode()
    with Site(wants(pair)) as other, Site(lambda head: answer(302, f"Location: {other.url()}")) as site:
        fails(site.url(), "none was given", credentials=("me", "s3cr3t"))
        opens(site.url(), credentials=("me", "s3cr3t"), on_challenge=ask)
        assert asked == [f"127.0.0.1:{other.port}"]


def test_redirect_to_tls(certificates: dict[str, str]) -> None:
    with Site(upgrade, tls=(certificates["server.pem"], certificates["server.key"])) as secure:
        with Site(lambda head: answer(301, f"Location: {secure.url(host='localhost')}")) as site:
            connection = blip.sync.connect(site.url(), ca_file=certificates["ca.pem"], close_timeout=0.2)
            assert connection.is_secure
            connection.close()
            with pytest.raises(ConnectionFailed, match="certificate"):
                opens(site.url())
        with Site(lambda head: answer(301, f"Location: {secure.url()}")) as site:
            opens(site.url(), ca_file=certificates["ca.pem"], server_name="for.the.first.host")


def test_never_from_tls_to_none(certificates: dict[str, str]) -> None:
    identity = (certificates["server.pem"], certificates["server.key"])
    with Site(upgrade) as plain, Site(lambda head: answer(301, f"Location: {plain.url()}"), tls=identity) as site:
        fails(site.url(), "not encrypted", 301, ca_file=certificates["ca.pem"])
        assert plain.heads == []


def test_circles_and_limits() -> None:
    def script(head: bytes) -> bytes:
        path = head.split(b" ")[1].decode()
        if path.startswith("/circle"):
            return answer(302, "Location: /circle" + ("2" if path == "/circle" else ""))
        number = int(path[1:])
        return answer(302, f"Location: /{number + 1}") if number < 20 else upgrade(head)

    with Site(script) as site:
        fails(site.url("/circle"), "round in a circle", 302)
        fails(site.url("/0"), "10 redirects", 302)
        opens(site.url("/10"))
        opens(site.url("/0"), redirects=20)
        fails(site.url("/0"), "it points to", 302, redirects=0)
        with pytest.raises(UsageError):
            opens(site.url(), redirects=101)


@pytest.mark.parametrize(
    ("lines", "words"),
    [
        ((), "does not say where to"),
        (("Location: ",), "does not say where to"),
        (("Location: /a", "Location: /b"), "does not say clearly"),
        (("Location: ftp://x/",), "something else"),
        (("Location: ws://a b/",), "something else"),
        (("Location: ws://u:s3cr3t@x/",), "user name"),
        (("Location: ws+unix://%2Ftmp%2Fx/",), "Unix socket"),
    ],
)
def test_bad_redirects(lines: tuple[str, ...], words: str) -> None:
    with Site(lambda head: answer(307, *lines)) as site:
        fails(site.url(), words, 307)


# Cookies


def test_cookies() -> None:
    def script(head: bytes) -> bytes:
        if header(head, "Cookie") is None:
            return answer(302, "Location: /db/", "Set-Cookie: session=s3cr3t; Path=/db", "Set-Cookie: bad", body="x")
        return upgrade(head, "Set-Cookie: late=1\r\n")

    with Site(script) as site:
        opens(site.url("/db/"), cookies=True)
        assert header(site.heads[-1], "Cookie") == "session=s3cr3t"
        assert blip.cookies(site.url("/db/")) == "session=s3cr3t; late=1"
        assert blip.cookies(site.url("/")) == ""
        opens(site.url("/db/"), cookies=True, headers={"Cookie": "own=1"})
        assert header(site.heads[-1], "Cookie") == "own=1; session=s3cr3t; late=1"
        # Those that did not ask for cookies have none.
        fails(site.url("/db/"), "circle", 302)
        assert header(site.heads[-1], "Cookie") is None


def test_cookies_of_the_program() -> None:
    with Site(upgrade) as site:
        blip.set_cookie(site.url("/db"), "SyncGatewaySession=s3cr3t; Path=/db; Max-Age=3600")
        opens(site.url("/db/_blipsync"), cookies=True)
        opens(site.url("/other"), cookies=True)
        opens(site.url("/db/_blipsync"))
        seen = [header(head, "Cookie") for head in site.heads]
        assert seen == ["SyncGatewaySession=s3cr3t", None, None]
        blip.set_cookie(site.url("/db"), "SyncGatewaySession=; Path=/db; Max-Age=0")
        blip.set_cookie(site.url("/db"), "SyncGatewaySession=; Path=/db; Max-Age=0")
        assert blip.cookies(site.url("/db")) == ""
    for url, cookie in (("ws://h/", "no name"), ("ws://h/", "a=b; Secure"), ("ws://h/", "a=b; Domain=other.example")):
        with pytest.raises(UsageError):
            blip.set_cookie(url, cookie)
    with pytest.raises(blip.Error):
        blip.set_cookie("nonsense", "a=b")


def test_cookie_loop() -> None:
    """A server that sets another cookie each time does not keep us for ever."""
    count = iter(range(1000))
    with Site(lambda head: answer(302, "Location: /", f"Set-Cookie: a={next(count)}")) as site:
        fails(site.url(), "10 redirects", 302, cookies=True)
