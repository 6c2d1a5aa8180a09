"""The synchronous interface, client and server, over real connections."""

from __future__ import annotations

import io
import os
import signal
import threading
import time
import urllib.error
import urllib.request
from pathlib import Path
from typing import Iterator

import pytest
from conftest import LIMIT, eventually

import blip.sync


def echo(request: blip.sync.Request) -> blip.Response:
    properties = {key: value for key, value in request.properties.items() if key.startswith("x-")}
    return blip.Response(request.body, properties=properties, content_type=request.content_type)


@pytest.fixture
def listener() -> Iterator[blip.sync.Listener]:
    with blip.sync.serve("127.0.0.1", 0, handlers={"echo": echo}) as listener:
        yield listener
        listener.close(graceful=False)


@pytest.fixture
def connection(listener: blip.sync.Listener) -> Iterator[blip.sync.Connection]:
    with blip.sync.connect(listener.url) as connection:
        yield connection


def test_request_and_reply(connection: blip.sync.Connection) -> None:
    reply = connection.request("echo", b"hello", properties={"x-key": "välue"})
    assert reply.body == b"hello"
    assert reply.properties == {"x-key": "välue"}
    assert connection.request("echo", "text").text() == "text"
    assert connection.request("echo", {"a": 1}).json() == {"a": 1}
    assert connection.request("echo").body == b""


@pytest.mark.parametrize("size", [0, 1, 65535, 65536, 300_000])
def test_bodies_of_every_kind(connection: blip.sync.Connection, tmp_path: Path, size: int) -> None:
    data = os.urandom(size)
    path = tmp_path / "body"
    path.write_bytes(data)
    pieces = (data[start : start + 7000] for start in range(0, size, 7000))
    for body in (data, bytearray(data), memoryview(data), path, io.BytesIO(data), pieces):
        assert connection.request("echo", body).body == data
    with open(path, "rb") as file:
        assert connection.request("echo", file).body == data
    pipe_end, other_end = os.pipe()
    writer = threading.Thread(target=lambda: (os.write(other_end, data[:1000]), os.close(other_end)))
    writer.start()
    with open(pipe_end, "rb") as pipe:
        assert connection.request("echo", pipe).body == data[:1000]
    writer.join()


def test_body_in_a_buffer_stays_locked_until_it_is_sent(connection: blip.sync.Connection) -> None:
    body = bytearray(200_000)
    for _ in range(20):
        connection.request("echo", body)
    eventually(lambda: connection._pump.poll() or _can_grow(body))


def _can_grow(body: bytearray) -> bool:
    try:
        body.append(0)
    except BufferError:
        return False
    return True


def test_error_replies(listener: blip.sync.Listener, connection: blip.sync.Connection) -> None:
    @listener.handler("refuse")
    def refuse(request: blip.sync.Request) -> None:
        raise blip.ResponseError(403, "no", "App")

    @listener.handler("break")
    def broken(request: blip.sync.Request) -> None:
        raise SystemExit

    for stream in (False, True):
        with pytest.raises(blip.ResponseError) as caught:
            connection.request("refuse", stream=stream)
        assert (caught.value.domain, caught.value.code, caught.value.text) == ("App", 403, "no")
        assert str(caught.value) == "App/403: no"
    with pytest.raises(blip.ResponseError, match="^BLIP/501: "):
        connection.request("break")
    with pytest.raises(blip.ResponseError, match="^BLIP/404: "):
        connection.request("nobody")
    assert connection.request("echo", b"go on").body == b"go on"


def test_send_without_reply(listener: blip.sync.Listener, connection: blip.sync.Connection) -> None:
    received: list[int] = []

    @listener.handler("note")
    def note(request: blip.sync.Request) -> None:
        assert request.no_reply
        received.append(len(request.body))

    counts: list[int] = []
    connection.send("note", b"one")
    connection.send("note", b"two!", wait=True)
    connection.send("note", bytes(500_000), progress=counts.append)
    eventually(lambda: len(received) == 3)
    assert received == [3, 4, 500_000]
    assert counts == sorted(counts)
    assert counts[-1] == 500_000


def test_streams(listener: blip.sync.Listener, connection: blip.sync.Connection) -> None:
    size = 3_000_000

    @listener.handler("upload", stream=True)
    def upload(request: blip.sync.Request) -> str:
        return str(sum(len(chunk) for chunk in request.stream()))

    @listener.handler("download")
    def download(request: blip.sync.Request) -> bytes:
        return bytes(size)

    assert connection.request("upload", bytes(size)).text() == str(size)
    sizes = [len(chunk) for chunk in connection.request("download", stream=True).stream()]
    assert sum(sizes) == size
    assert len(sizes) > 10
    assert connection.request("download", stream=True).read() == bytes(size)


def test_handler_that_asks_back(listener: blip.sync.Listener) -> None:
    @listener.handler("twice")
    def twice(request: blip.sync.Request) -> str:
        first = request.connection.request("name", timeout=LIMIT).text()
        return first + request.connection.request("name", timeout=LIMIT).text()

    names = {"name": lambda request: "client"}
    with blip.sync.connect(listener.url, handlers=names) as connection:
        assert connection.request("twice", timeout=LIMIT).text() == "clientclient"
        results: list[str] = []
        threads = [
            threading.Thread(target=lambda: results.append(connection.request("twice", timeout=LIMIT).text()))
            for _ in range(10)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(LIMIT)
        assert results == ["clientclient"] * 10


def test_many_threads_on_one_connection(connection: blip.sync.Connection) -> None:
    failures: list[BaseException] = []

    def work(number: int) -> None:
        try:
            for turn in range(200):
                body = f"{number}/{turn}".encode()
                assert connection.request("echo", body, timeout=LIMIT).body == body
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=work, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(LIMIT)
        assert not thread.is_alive()
    assert failures == []
    assert not connection._pump.waiters
    assert not connection._pump._followers


def test_workers() -> None:
    barrier = threading.Barrier(4)

    def meet(request: blip.sync.Request) -> bytes:
        barrier.wait(LIMIT)
        return b"met"

    with blip.sync.serve("127.0.0.1", 0, handlers={"meet": meet}, workers=4) as listener:
        with blip.sync.connect(listener.url) as connection:
            results: list[bytes] = []
            threads = [
                threading.Thread(target=lambda: results.append(connection.request("meet", timeout=LIMIT).body))
                for _ in range(4)
            ]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join(LIMIT)
            assert results == [b"met"] * 4


def test_timeout_and_pending_requests(listener: blip.sync.Listener) -> None:
    kept: list[blip.sync.Request] = []

    @listener.handler("never")
    def never(request: blip.sync.Request) -> None:
        request.defer()
        kept.append(request)

    connection = blip.sync.connect(listener.url)
    start = time.monotonic()
    with pytest.raises(blip.TimeoutError):
        connection.request("never", timeout=0.1)
    assert 0.09 < time.monotonic() - start < LIMIT / 2
    closer = threading.Timer(0.1, connection.close)
    closer.start()
    with pytest.raises(blip.ConnectionClosed):
        connection.request("never", timeout=LIMIT)
    closer.join()
    with pytest.raises(blip.ConnectionClosed):
        connection.request("echo")


def test_answer_later_from_another_thread(listener: blip.sync.Listener, connection: blip.sync.Connection) -> None:
    @listener.handler("later")
    def later(request: blip.sync.Request) -> None:
        request.defer()
        threading.Timer(0.05, request.respond, ["late"]).start()

    assert connection.request("later", timeout=LIMIT).text() == "late"


def test_interrupt_gets_through(listener: blip.sync.Listener, connection: blip.sync.Connection) -> None:
    kept: list[blip.sync.Request] = []

    @listener.handler("never")
    def never(request: blip.sync.Request) -> None:
        request.defer()
        kept.append(request)

    def interrupt() -> None:
        eventually(lambda: kept)
        os.kill(os.getpid(), signal.SIGINT)

    thread = threading.Thread(target=interrupt)
    start = time.monotonic()
    with pytest.raises(KeyboardInterrupt):
        thread.start()
        connection.request("never", timeout=LIMIT)
    assert time.monotonic() - start < LIMIT / 2
    thread.join()
    assert connection.request("echo", b"go on").body == b"go on"


def test_graceful_close_and_waiting(listener: blip.sync.Listener) -> None:
    begun, may_end = threading.Event(), threading.Event()

    @listener.handler("slow")
    def slow(request: blip.sync.Request) -> bytes:
        begun.set()
        may_end.wait(LIMIT)
        return b"done"

    connection = blip.sync.connect(listener.url)
    with pytest.raises(blip.TimeoutError):
        connection.wait_closed(timeout=0.05)
    results: list[bytes] = []
    thread = threading.Thread(target=lambda: results.append(connection.request("slow").body))
    thread.start()
    assert begun.wait(LIMIT)
    closer = threading.Thread(target=lambda: connection.close_gracefully(timeout=LIMIT))
    closer.start()
    eventually(lambda: connection.state != "open" or not closer.is_alive() or _is_refused(connection))
    assert closer.is_alive()
    may_end.set()
    thread.join(LIMIT)
    closer.join(LIMIT)
    assert results == [b"done"]
    assert connection.state == "closed"


def _is_refused(connection: blip.sync.Connection) -> bool:
    try:
        connection.send("echo")
    except blip.ConnectionClosed:
        return True
    return False


def test_facts(listener: blip.sync.Listener, connection: blip.sync.Connection) -> None:
    connection.request("echo")
    assert connection.subprotocol == "BLIP_3"
    assert connection.remote_address == f"127.0.0.1:{listener.port}"
    assert connection.counters()["messages_sent"] == 1
    assert 0 <= connection.ping(LIMIT) < LIMIT
    assert len(listener.connections) == listener.connection_count == 1


def test_connecting_fails_with_a_reason(unused_port: int) -> None:
    with pytest.raises(blip.ConnectionFailed) as caught:
        blip.sync.connect(f"ws://127.0.0.1:{unused_port}/")
    assert caught.value.status == blip.Status.REFUSED
    with pytest.raises(blip.UsageError):
        blip.sync.connect("nonsense")


def test_connecting_takes_no_longer_than_its_timeout() -> None:
    import socket

    with socket.socket() as silent:
        silent.bind(("127.0.0.1", 0))
        silent.listen()
        start = time.monotonic()
        with pytest.raises(blip.ConnectTimedOut):
            blip.sync.connect(f"ws://127.0.0.1:{silent.getsockname()[1]}/", timeout=0.3)
        assert 0.2 < time.monotonic() - start < LIMIT / 2


def test_tls(certificates: dict[str, str]) -> None:
    identity = (certificates["server.pem"], certificates["server.key"])
    with blip.sync.serve("127.0.0.1", 0, tls=identity, handlers={"echo": echo}) as listener:
        url = f"wss://localhost:{listener.port}/"
        with blip.sync.connect(url, ca_file=certificates["ca.pem"]) as connection:
            assert connection.request("echo", bytes(200_000)).body == bytes(200_000)
        with pytest.raises(blip.ConnectionFailed):
            blip.sync.connect(url)


def test_on_connect(listener: blip.sync.Listener) -> None:
    seen: list[str] = []

    @listener.on_connect
    def greet(connection: blip.sync.Connection) -> None:
        connection.send("hello", b"you")

    with blip.sync.connect(listener.url, handlers={"hello": lambda request: seen.append(request.text())}):
        eventually(lambda: seen == ["you"])


def test_streams_that_nobody_reads_to_the_end(listener: blip.sync.Listener, connection: blip.sync.Connection) -> None:
    @listener.handler("download")
    def download(request: blip.sync.Request) -> bytes:
        return bytes(5_000_000)

    @listener.handler("a piece", stream=True)
    def a_piece(request: blip.sync.Request) -> bytes:
        for _ in request.stream():
            break
        return b"enough"

    for _ in range(3):
        for _ in connection.request("download", stream=True).stream():
            break
        connection.request("download", stream=True)
        assert connection.request("a piece", bytes(5_000_000), timeout=LIMIT).body == b"enough"


def test_files_for_browsers(listener: blip.sync.Listener, tmp_path: Path) -> None:
    (tmp_path / "hello.txt").write_text("hello")
    listener.serve_files("/files/", tmp_path, writable=True, upload_limit=100)
    base = f"http://127.0.0.1:{listener.port}/files/"
    with urllib.request.urlopen(base + "hello.txt", timeout=30) as answer:
        assert answer.read() == b"hello"
    for size, status in ((100, 201), (101, 413)):
        request = urllib.request.Request(base + f"new{size}", data=b"x" * size, method="PUT")
        try:
            with urllib.request.urlopen(request, timeout=30) as answer:
                assert answer.status == status
        except urllib.error.HTTPError as error:
            assert error.code == status
    assert sorted(path.name for path in tmp_path.iterdir()) == ["hello.txt", "new100"]
    with pytest.raises(blip.Error, match="No such file"):
        listener.serve_files("/none/", tmp_path / "none")
