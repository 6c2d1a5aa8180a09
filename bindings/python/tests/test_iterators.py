"""Bodies that iterators give while they are sent: live, held back by the peer, broken off."""

from __future__ import annotations

import asyncio
import gzip
import io
import os
import threading
from pathlib import Path
from typing import Any, AsyncIterator, Callable, Iterator

import pytest
from conftest import LIMIT, eventually, eventually_async, run

import blip
import blip.sync

BLOCK = bytes(range(256)) * 256


class Server:
    """What requests get: "collect": their size; "steps": an answer after each piece was seen."""

    def __init__(self) -> None:
        self.seen: asyncio.Queue[bytes] = asyncio.Queue()
        self.may_read = asyncio.Event()
        self.failed: asyncio.Future[BaseException] = asyncio.get_running_loop().create_future()

    async def collect(self, request: blip.Request) -> str:
        size = 0
        try:
            async for chunk in request.stream():
                size += len(chunk)
                self.seen.put_nowait(chunk)
        except blip.Error as error:
            self.failed.set_result(error)
            raise
        return str(size)

    async def wait_and_collect(self, request: blip.Request) -> str:
        await self.may_read.wait()
        return await self.collect(request)

    async def listen(self) -> blip.Listener:
        listener = await blip.serve("127.0.0.1", 0, handlers={"echo": lambda request: request.body})
        listener.add_handler("collect", self.collect, stream=True)
        listener.add_handler("wait and collect", self.wait_and_collect, stream=True)
        return listener


def test_pieces_of_a_request_are_sent_as_they_come() -> None:
    async def main() -> None:
        server = Server()
        closed = []

        async def pieces() -> AsyncIterator[bytes]:
            try:
                for piece in (b"one", b"two", b"", b"three"):
                    yield piece
                    if piece:
                        assert await server.seen.get() == piece
            finally:
                closed.append(True)

        async with await server.listen() as listener, blip.connect(listener.url) as connection:
            before = len(connection._pump.calls)
            assert (await connection.request("collect", pieces(), timeout=LIMIT)).text() == "11"
            await connection.send("collect", pieces())
            assert closed == [True, True]
            await eventually_async(lambda: len(connection._pump.calls) == before)

    run(main())


def test_an_iterator_is_held_back_by_a_slow_peer() -> None:
    async def main() -> None:
        server = Server()
        given = 0
        counts: list[int] = []

        def pieces() -> Iterator[bytes]:
            nonlocal given
            for _ in range(400):
                given += len(BLOCK)
                yield BLOCK

        async with await server.listen() as listener, blip.connect(listener.url) as connection:
            for body in (pieces(), as_async(pieces())):
                given = 0
                server.may_read.clear()
                counts.clear()
                pending = asyncio.ensure_future(
                    connection.request("wait and collect", body, properties={"x": "y"}, progress=counts.append)
                )
                await eventually_async(lambda: bool(counts))
                # Others are served while it waits.
                for _ in range(50):
                    assert (await connection.request("echo", b"others")).body == b"others"
                assert given < 8_000_000
                server.may_read.set()
                assert (await pending).text() == str(400 * len(BLOCK))
                assert counts == sorted(counts)
                assert counts[-1] == 400 * len(BLOCK)

    run(main())


async def as_async(pieces: Iterator[Any]) -> AsyncIterator[Any]:
    for piece in pieces:
        await asyncio.sleep(0)
        yield piece


def test_pieces_of_a_reply_are_sent_as_they_come(caplog: pytest.LogCaptureFixture) -> None:
    async def main() -> None:
        gate: asyncio.Queue[bytes] = asyncio.Queue()

        async def steps(request: blip.Request) -> AsyncIterator[bytes]:
            yield b"begin"
            while True:
                piece = await gate.get()
                if not piece:
                    return
                yield piece

        async def wrapped(request: blip.Request) -> blip.Response:
            return blip.Response(steps(request), properties={"kind": "live"}, compressed=True)

        def plain(request: blip.Request) -> Iterator[bytes]:
            yield from (BLOCK for _ in range(100))

        handlers = {"steps": steps, "wrapped": wrapped, "plain": plain}
        async with await blip.serve("127.0.0.1", 0, handlers=handlers) as listener:
            async with blip.connect(listener.url) as connection:
                for profile in ("steps", "wrapped"):
                    reply = await connection.request(profile, stream=True)
                    stream = reply.stream()
                    assert await stream.__anext__() == b"begin"
                    for piece in (b"1", b"22", BLOCK[:9000], b"4"):
                        gate.put_nowait(piece)
                        seen = b""
                        while len(seen) < len(piece):
                            seen += await stream.__anext__()
                        assert seen == piece
                    gate.put_nowait(b"")
                    assert [chunk async for chunk in stream] == []
                    if profile == "wrapped":
                        assert reply.properties["kind"] == "live"
                assert (await connection.request("plain")).body == BLOCK * 100
                # Nobody waits for the reply: nothing is made, nothing is logged.
                for profile in handlers:
                    await connection.send(profile)
                await connection.ping()
        assert caplog.records == []

    run(main())


def test_an_iterator_that_raises_before_its_first_piece_harms_nobody(caplog: pytest.LogCaptureFixture) -> None:
    async def main() -> None:
        server = Server()

        def refuse(request: blip.Request) -> Iterator[bytes]:
            raise blip.ResponseError(404, "no such thing", "App")
            yield b""

        async def fall(request: blip.Request) -> AsyncIterator[bytes]:
            raise KeyError("secret")
            yield b""

        async with await server.listen() as listener, blip.connect(listener.url) as connection:
            listener.add_handler("refuse", refuse)
            listener.add_handler("fall", fall)
            for body in (broken(0), as_async(broken(0))):
                with pytest.raises(ZeroDivisionError):
                    await connection.request("collect", body)
            with pytest.raises(ZeroDivisionError):
                await connection.send("collect", broken(0))
            with pytest.raises(TypeError, match="must yield bytes, not int"):
                await connection.request("collect", iter([1]))
            with pytest.raises(blip.ResponseError) as caught:
                await connection.request("refuse")
            assert (caught.value.domain, caught.value.code) == ("App", 404)
            assert caplog.records == []
            with pytest.raises(blip.ResponseError, match="501"):
                await connection.request("fall")
            assert len(caplog.records) == 1
            assert (await connection.request("echo", b"go on")).body == b"go on"
            assert connection.counters()["messages_sent"] == 3

    run(main())


def broken(count: int) -> Iterator[bytes]:
    for _ in range(count):
        yield BLOCK
    yield b"x" * (1 // min(count, 0))


@pytest.mark.parametrize("kind", ["plain", "async", "send"])
def test_an_iterator_that_raises_later_ends_the_connection(kind: str) -> None:
    async def main() -> None:
        server = Server()
        async with await server.listen() as listener:
            connection = await blip.connect(listener.url)
            with pytest.raises(ZeroDivisionError):
                if kind == "send":
                    await connection.send("collect", broken(20))
                else:
                    body = broken(20)
                    await connection.request("collect", body if kind == "plain" else as_async(body))
            await connection.wait_closed()
            assert isinstance(await server.failed, blip.ConnectionClosed)
            await eventually_async(lambda: not listener.connections)

    run(main())


def test_a_reply_that_breaks_off_ends_the_connection(caplog: pytest.LogCaptureFixture) -> None:
    async def main() -> None:
        def fall(request: blip.Request) -> Iterator[bytes]:
            # More than is held unsent: some of it is on its way for certain.
            yield from (BLOCK for _ in range(20))
            raise blip.ResponseError(500, "too late")

        async with await blip.serve("127.0.0.1", 0, handlers={"fall": fall}) as listener:
            connection = await blip.connect(listener.url)
            with pytest.raises(blip.ConnectionClosed):
                await connection.request("fall")
            await connection.wait_closed()
            assert connection.close_code == 1011
            await eventually_async(lambda: len(caplog.records) == 1)
            assert "too late" in caplog.text

    run(main())


def test_time_runs_out_while_an_iterator_has_nothing() -> None:
    async def main() -> None:
        server = Server()
        ended: asyncio.Queue[int] = asyncio.Queue()

        async def stuck(count: int) -> AsyncIterator[bytes]:
            try:
                for _ in range(count):
                    yield BLOCK
                await asyncio.sleep(1000)
            finally:
                ended.put_nowait(count)

        async with await server.listen() as listener:
            connection = await blip.connect(listener.url)
            with pytest.raises(blip.TimeoutError):
                await connection.request("collect", stuck(0), timeout=0.1)
            assert await ended.get() == 0
            assert (await connection.request("echo", b"go on")).body == b"go on"
            with pytest.raises(blip.TimeoutError):
                await connection.request("collect", stuck(3), timeout=0.5)
            assert await ended.get() == 3
            await connection.wait_closed()

            connection = await blip.connect(listener.url)
            task = asyncio.ensure_future(connection.request("collect", stuck(2)))
            await eventually_async(lambda: connection.counters()["bytes_sent"] > len(BLOCK))
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            assert await ended.get() == 2
            await connection.wait_closed()
            await eventually_async(lambda: not connection._tasks)

    run(main())


def test_the_connection_ends_while_an_iterator_waits() -> None:
    async def main() -> None:
        server = Server()
        ended = []

        def endless() -> Iterator[bytes]:
            try:
                while True:
                    yield BLOCK
            finally:
                ended.append(True)

        async with await server.listen() as listener:
            for by_peer in (False, True):
                connection = await blip.connect(listener.url)
                counts: list[int] = []
                task = asyncio.ensure_future(connection.request("wait and collect", endless(), progress=counts.append))
                await eventually_async(lambda counts=counts: bool(counts))
                await (listener.connections[0] if by_peer else connection).close()
                with pytest.raises(blip.ConnectionClosed):
                    await task
                await eventually_async(lambda connection=connection: not connection._tasks)
                assert ended.pop()
                await eventually_async(lambda: not listener.connections)
            server.may_read.set()

    run(main())


def test_a_reply_that_comes_before_the_body_has_ended() -> None:
    async def main() -> None:
        go_on: asyncio.Event = asyncio.Event()

        async def early(request: blip.Request) -> None:
            await request.respond(b"known already")
            async for _ in request.stream():
                pass

        async def pieces() -> AsyncIterator[bytes]:
            yield b"question"
            await asyncio.wait_for(go_on.wait(), LIMIT / 2)
            yield BLOCK

        async with await blip.serve("127.0.0.1", 0) as listener, blip.connect(listener.url) as connection:
            listener.add_handler("early", early, stream=True)
            pending = asyncio.ensure_future(connection.request("early", pieces()))
            await asyncio.wait((pending,), timeout=0.2)
            go_on.set()
            assert (await pending).body == b"known already"
            await eventually_async(lambda: not connection._tasks)
            assert connection.is_open

    run(main())


def test_pieces_of_every_kind() -> None:
    def pieces() -> Iterator[Any]:
        yield b""
        yield b"bytes"
        yield bytearray(b"array")
        yield memoryview(BLOCK)
        yield memoryview(BLOCK)[::-1]
        yield memoryview(bytearray(BLOCK * 20))
        yield memoryview(BLOCK * 20)[1000:]
        yield BLOCK * 20
        yield bytearray()

    whole = b"".join(bytes(piece) for piece in pieces())

    async def main() -> None:
        async with await blip.serve("127.0.0.1", 0, handlers={"echo": lambda request: request.body}) as listener:
            async with blip.connect(listener.url) as connection:
                for compressed in (False, True):
                    assert (await connection.request("echo", pieces(), compressed=compressed)).body == whole
                assert (await connection.request("echo", as_async(pieces()))).body == whole
                assert (await connection.request("echo", iter(()))).body == b""

    run(main())


def test_files_that_are_no_plain_files(tmp_path: Path) -> None:
    (tmp_path / "plain").write_bytes(BLOCK)
    with gzip.open(tmp_path / "packed", "wb") as packed:
        packed.write(BLOCK * 10)
    with blip.sync.serve("127.0.0.1", 0, handlers={"echo": lambda request: request.body}) as listener:
        with blip.sync.connect(listener.url) as connection:
            with gzip.open(tmp_path / "packed") as unpacked:
                assert connection.request("echo", unpacked).body == BLOCK * 10
            with open(tmp_path / "plain", "r+b") as file:
                file.seek(0, os.SEEK_END)
                file.write(b"more")
                file.seek(10)
                assert connection.request("echo", file).body == BLOCK[10:] + b"more"
            with open(tmp_path / "plain", "ab") as file, pytest.raises(io.UnsupportedOperation):
                connection.request("echo", file)
            assert connection.request("echo", Path("/dev/null")).body == b""


# Without asyncio.


@pytest.fixture
def listener() -> Iterator[blip.sync.Listener]:
    with blip.sync.serve("127.0.0.1", 0, handlers={"echo": lambda request: request.body}) as listener:
        yield listener
        listener.close(graceful=False)


def collector(may_read: threading.Event, seen: list[bytes]) -> Callable[[blip.sync.Request], str]:
    def collect(request: blip.sync.Request) -> str:
        may_read.wait(LIMIT)
        size = 0
        for chunk in request.stream():
            size += len(chunk)
            seen.append(chunk)
        return str(size)

    return collect


def test_sync_pieces_are_sent_as_they_come(listener: blip.sync.Listener) -> None:
    may_read = threading.Event()
    may_read.set()
    seen: list[bytes] = []
    listener.add_handler("collect", collector(may_read, seen), stream=True)

    def pieces() -> Iterator[bytes]:
        for number in range(20):
            yield str(number).encode()
            eventually(lambda number=number: b"".join(seen) == b"".join(str(n).encode() for n in range(number + 1)))

    with blip.sync.connect(listener.url) as connection:
        assert connection.request("collect", pieces(), timeout=LIMIT).text() == "30"
        seen.clear()
        connection.send("collect", pieces())
        reader, writer = os.pipe()
        seen.clear()
        with open(reader, "rb") as pipe:
            os.write(writer, b"first")
            thread = threading.Thread(target=lambda: connection.request("collect", pipe))
            thread.start()
            eventually(lambda: seen == [b"first"])
            os.write(writer, b"second")
            os.close(writer)
            thread.join(LIMIT)
            assert seen == [b"first", b"second"]


def test_sync_iterator_is_held_back_by_a_slow_peer(listener: blip.sync.Listener) -> None:
    may_read = threading.Event()
    listener.add_handler("collect", collector(may_read, []), stream=True)
    given = 0

    def pieces() -> Iterator[bytes]:
        nonlocal given
        for _ in range(400):
            given += len(BLOCK)
            yield BLOCK

    with blip.sync.connect(listener.url) as connection:
        results: list[str] = []
        counts: list[int] = []
        thread = threading.Thread(
            target=lambda: results.append(connection.request("collect", pieces(), progress=counts.append).text())
        )
        thread.start()
        eventually(lambda: counts)
        for _ in range(50):
            assert connection.request("echo", b"others").body == b"others"
        assert given < 8_000_000
        may_read.set()
        thread.join(LIMIT)
        assert results == [str(400 * len(BLOCK))]
        eventually(lambda: connection._pump.poll() or counts[-1] == 400 * len(BLOCK))
        assert not connection._pump._followers


@pytest.mark.parametrize("workers", [0, 2])
def test_sync_handlers_may_return_iterators(workers: int, caplog: pytest.LogCaptureFixture) -> None:
    gate = threading.Semaphore(0)

    def steps(request: blip.sync.Request) -> Iterator[bytes]:
        for piece in (b"one", b"two", b"three"):
            yield piece
            assert gate.acquire(timeout=LIMIT)

    def large(request: blip.sync.Request) -> Iterator[bytes]:
        yield from (BLOCK for _ in range(200))

    def respond(request: blip.sync.Request) -> None:
        request.respond(BLOCK for _ in range(20))

    def refuse(request: blip.sync.Request) -> Iterator[bytes]:
        raise blip.ResponseError(404, "no such thing")
        yield b""

    handlers = {"steps": steps, "large": large, "respond": respond, "refuse": refuse}
    with blip.sync.serve("127.0.0.1", 0, handlers=handlers, workers=workers) as listener:
        with blip.sync.connect(listener.url) as connection:
            stalled = connection.request("large", stream=True)
            stream = connection.request("steps", stream=True).stream()
            for piece in (b"one", b"two", b"three"):
                assert next(stream) == piece
                gate.release()
            assert list(stream) == []
            assert connection.request("respond").body == BLOCK * 20
            with pytest.raises(blip.ResponseError, match="404"):
                connection.request("refuse")
            assert stalled.read() == BLOCK * 200
            connection.send("large")
            connection.ping()
    assert caplog.records == []


def test_sync_iterator_that_raises(listener: blip.sync.Listener) -> None:
    may_read = threading.Event()
    may_read.set()
    listener.add_handler("collect", collector(may_read, []), stream=True)
    connection = blip.sync.connect(listener.url)
    for call in (connection.request, connection.send):
        with pytest.raises(ZeroDivisionError):
            call("collect", broken(0))
    with pytest.raises(TypeError, match="asynchronous"):
        connection.request("collect", as_async(broken(0)))
    assert connection.request("echo", b"go on").body == b"go on"
    calls = len(connection._pump.calls)
    with pytest.raises(ZeroDivisionError):
        connection.request("collect", broken(20))
    connection.wait_closed(timeout=LIMIT)
    assert len(connection._pump.calls) <= calls
    connection = blip.sync.connect(listener.url)
    with pytest.raises(ZeroDivisionError):
        connection.send("collect", broken(20))
    connection.wait_closed(timeout=LIMIT)


def test_sync_request_ends_while_its_iterator_waits(listener: blip.sync.Listener) -> None:
    may_read = threading.Event()
    listener.add_handler("collect", collector(may_read, []), stream=True)

    def endless() -> Iterator[bytes]:
        while True:
            yield BLOCK

    connection = blip.sync.connect(listener.url)
    with pytest.raises(blip.TimeoutError):
        connection.request("collect", endless(), timeout=0.3)
    may_read.set()
    connection.wait_closed(timeout=LIMIT)
    may_read.clear()
    for call in (connection.request, connection.send):
        connection = blip.sync.connect(listener.url)
        counts: list[int] = []

        def close(connection: blip.sync.Connection = connection, counts: list[int] = counts) -> None:
            eventually(lambda: counts)
            connection.close()

        closer = threading.Thread(target=close)
        closer.start()
        with pytest.raises(blip.ConnectionClosed):
            getattr(connection, call.__name__)("collect", endless(), progress=counts.append)
        closer.join(LIMIT)
    may_read.set()
