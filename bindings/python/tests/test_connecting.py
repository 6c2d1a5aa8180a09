"""Where to connect to, what is told when that is wrong, and what is never told; both interfaces alike."""

from __future__ import annotations

import logging
import traceback
from pathlib import Path
from typing import Any, Callable

import pytest
from conftest import run

import blip
import blip.sync

Connect = Callable[..., str]

SECRETS = ("anna", "hunter2")


def connect_asyncio(*arguments: Any, **options: Any) -> str:
    async def main() -> str:
        async with blip.connect(*arguments, **options) as connection:
            return repr(connection) + (await connection.request("where")).text()

    return str(run(main()))


def connect_sync(*arguments: Any, **options: Any) -> str:
    with blip.sync.connect(*arguments, **options) as connection:
        return repr(connection) + connection.request("where").text()


@pytest.fixture(params=[connect_asyncio, connect_sync], ids=["asyncio", "sync"])
def connect(request: pytest.FixtureRequest) -> Connect:
    return request.param  # type: ignore[no-any-return]


def where(request: blip.sync.Request) -> str:
    return f" asked for {request.connection.request_path}"


def everything_about(error: BaseException) -> str:
    parts = traceback.format_exception(type(error), error, error.__traceback__)
    seen: BaseException | None = error
    while seen is not None:
        parts += [str(seen), repr(seen), repr(seen.args), repr(vars(seen))]
        seen = seen.__cause__ or seen.__context__
    return "\n".join(parts)


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("ws://", "@127.0.0.1:{port}/"),
        ("ws://", "@127.0.0.1:{port}:1/"),
        ("ws://", "@127.0.0.1:0/"),
        ("ws://", "@two@localhost/"),
        ("ws://", "/@localhost/"),
        ("ws://", "%40localhost"),
        ("ws://", "%zz@localhost/"),
        ("ws://", "@localhost/#part"),
        ("ws://", "@localhost/\udc80"),
        ("ws://", "@localhost/\0"),
        ("ws://", "@ünicode/"),
        ("gopher://", "@localhost/"),
        ("", "@localhost"),
        ("ws+unix://", "@/run/socket"),
        ("ws+unix://", "@%2Fnowhere%2Fsocket/"),
    ],
)
def test_no_secret_of_a_url_is_told(
    connect: Connect,
    unused_port: int,
    before: str,
    after: str,
    caplog: pytest.LogCaptureFixture,
    capfd: pytest.CaptureFixture[str],
) -> None:
    caplog.set_level(logging.DEBUG)
    url = before + ":".join(SECRETS) + after.format(port=unused_port)
    with pytest.raises(blip.Error) as caught:
        connect(url)
    assert isinstance(caught.value, (blip.UsageError, blip.ConnectionFailed))
    assert "cannot connect" in str(caught.value)
    written = capfd.readouterr()
    for told in (everything_about(caught.value), caplog.text, written.out, written.err):
        for secret in SECRETS:
            assert secret not in told


def test_no_secret_is_in_a_repr(connect: Connect) -> None:
    with blip.sync.serve("127.0.0.1", 0, handlers={"where": where}) as listener:
        address = f"127.0.0.1:{listener.port}/chat"
        told = connect(f"ws://{':'.join(SECRETS)}@{address}")
    assert address in told
    pending = repr(blip.connect(f"ws://{':'.join(SECRETS)}@{address}"))
    for secret in SECRETS:
        assert secret not in told + pending


@pytest.mark.parametrize(
    ("url", "reason"),
    [
        ("", "the URL is empty"),
        ("nonsense", 'no "://"'),
        ("gopher://localhost/", "scheme is unknown"),
        ("ws://localhost:99999/", "the port at byte 15"),
        ("ws://local host/", "character at byte 10"),
        ("ws://::1/", "in brackets"),
        ("ws://localhost/#part", "fragment"),
        ("ws+unix:///run/socket", "%2F"),
    ],
)
def test_a_bad_url_is_told_what_and_where(connect: Connect, url: str, reason: str) -> None:
    with pytest.raises(blip.UsageError) as caught:
        connect(url)
    assert caught.value.status == blip.Status.URL
    assert str(caught.value).startswith("cannot connect: ")
    assert reason in str(caught.value)


def test_a_url_is_a_str(connect: Connect) -> None:
    with pytest.raises(TypeError, match="must be a str, not bytes"):
        connect(b"ws://localhost/")


def test_a_refused_connection_names_its_url(connect: Connect, unused_port: int) -> None:
    with pytest.raises(blip.ConnectionFailed, match=f"cannot connect to ws://127.0.0.1:{unused_port}/chat: "):
        connect(f"ws://127.0.0.1:{unused_port}/chat")


@pytest.mark.parametrize("name", ["socket", "a b%2F@ü:#?"])
def test_a_unix_socket_by_its_path(connect: Connect, tmp_path: Path, name: str) -> None:
    socket = tmp_path / name
    with blip.sync.serve(unix_path=socket, handlers={"where": where}):
        for path, asked in ((None, "/"), ("/chat?a=b", "/chat?a=b"), ("chat", "/chat"), ("", "/"), ("?a", "/?a")):
            told = connect(unix_path=socket, path=path)
            assert told.startswith("<blip connection ws+unix://%2F")
            assert told.endswith(f" asked for {asked}")
        assert connect(unix_path=str(socket)).endswith(" asked for /")


def test_a_unix_socket_with_tls(connect: Connect, tmp_path: Path, certificates: dict[str, str]) -> None:
    socket = tmp_path / "socket"
    identity = (certificates["server.pem"], certificates["server.key"])
    with blip.sync.serve(unix_path=socket, tls=identity, handlers={"where": where}):
        for options in ({"ca_file": certificates["ca.pem"]}, {"tls": True, "verify": False}, {"verify": False}):
            told = connect(unix_path=socket, path="/chat", **options)
            assert told.startswith("<blip connection wss+unix://%2F")
            assert told.endswith(" asked for /chat")
        with pytest.raises(blip.ConnectionFailed, match="wss.unix"):
            connect(unix_path=socket, tls=True)


def test_blip1_beside_websockets(connect: Connect) -> None:
    with blip.sync.serve("127.0.0.1", 0, blip1=True, handlers={"version": lambda r: r.connection.subprotocol}) as listener:
        for scheme, version in (("ws", "BLIP_3"), ("blip", "BLIP_1")):
            with blip.sync.connect(f"{scheme}://127.0.0.1:{listener.port}") as connection:
                assert connection.subprotocol == version
                assert connection.request("version").text() == version
    with blip.sync.serve("127.0.0.1", 0, blip1=True, websocket=False) as listener:
        assert listener.url == f"blip://127.0.0.1:{listener.port}"
        with pytest.raises(blip.ConnectionFailed):
            connect(f"ws://127.0.0.1:{listener.port}/")


def test_a_missing_unix_socket(connect: Connect, tmp_path: Path) -> None:
    with pytest.raises(blip.ConnectionFailed, match="nowhere"):
        connect(unix_path=tmp_path / "nowhere")


@pytest.mark.parametrize(
    ("arguments", "options", "reason"),
    [
        ((), {}, "a URL is needed"),
        ((), {"path": "/chat"}, "a URL is needed"),
        (("ws://localhost/",), {"unix_path": "/run/socket"}, "unix_path"),
        (("ws://localhost/",), {"path": "/chat"}, "path"),
        (("ws://localhost/",), {"tls": True}, "tls"),
        ((), {"unix_path": ""}, "the path of the Unix socket is missing"),
        ((), {"unix_path": "/" + "x" * 200}, "at most 107"),
        ((), {"unix_path": b"/run/\xff"}, "not UTF-8"),
    ],
)
def test_arguments_that_do_not_fit(connect: Connect, arguments: Any, options: Any, reason: str) -> None:
    with pytest.raises(blip.UsageError, match=reason):
        connect(*arguments, **options)


@pytest.mark.parametrize(
    ("make", "name"), [(lambda: blip.connect("ws://localhost/"), "connect"), (lambda: blip.serve("127.0.0.1"), "serve")]
)
def test_without_async_or_await_it_says_what_to_write(make: Callable[[], Any], name: str) -> None:
    advice = f"use 'async with', or await blip.{name}(…)"
    with pytest.raises(TypeError) as wrong_with:
        with make():
            pass
    assert str(wrong_with.value) == advice
    with pytest.raises(AttributeError) as no_await:
        make().request("echo")
    assert str(no_await.value) == f"there is no 'request' yet: {advice}"
    assert not hasattr(make(), "handler")


@pytest.mark.parametrize(
    ("error", "printed"),
    [
        (blip.ResponseError(404, "no handler"), "BLIP/404: no handler"),
        (blip.ResponseError(404), "BLIP/404"),
        (blip.ResponseError(-1, "words", "App"), "App/-1: words"),
    ],
)
def test_error_replies_print_as_domain_code_and_text(error: blip.ResponseError, printed: str) -> None:
    assert str(error) == printed
