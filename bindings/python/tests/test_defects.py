"""What happens between callbacks, closing, exceptions and the event loop."""

from __future__ import annotations

import asyncio
import gc
import os
import threading
import time
import weakref
from pathlib import Path
from typing import Any

import pytest
from conftest import LIMIT, eventually, run

import blip
import blip.sync
from blip import _pump

ECHO: dict[str | None, Any] = {"echo": lambda request: request.body}
LARGE = bytes(200_000)


def test_bodies_of_requests_that_were_not_sent_are_let_go() -> None:
    async def main() -> None:
        here, there = blip.pair()
        before = len(_pump._kept), len(here._pump.calls)
        for arguments in ({"timeout": -1}, {"properties": {"a": 1}}):
            with pytest.raises((ValueError, TypeError)):
                await here.request("x", LARGE, progress=print, **arguments)  # type: ignore[arg-type]
        await here.close()
        for call in (here.request, here.send):
            with pytest.raises(blip.ConnectionClosed):
                await call("x", LARGE)
        assert len(_pump._kept) == before[0]

    run(main())
    first, _ = blip.sync.pair()
    before = len(_pump._kept)
    with pytest.raises(ValueError):
        first.request("x", LARGE, timeout=-1)
    first.close()
    for call in (first.request, first.send):
        with pytest.raises(blip.ConnectionClosed):
            call("x", LARGE)
    assert len(_pump._kept) == before


def test_functions_of_the_program_keep_no_closed_connection() -> None:
    with blip.sync.serve("127.0.0.1", 0, handlers=ECHO) as listener:

        def use(way: str) -> weakref.ref[blip.sync.Connection]:
            connection = blip.sync.connect(listener.url)
            if way == "handler":
                connection.add_handler("x", lambda request: connection.request("echo").body)
            elif way == "observer":
                connection.observe(lambda what: connection.is_open)
            else:
                connection.on_close_request(lambda peer: connection.is_open)
            connection.request("echo", timeout=LIMIT)
            connection.close()
            return weakref.ref(connection)

        def is_gone(found: weakref.ref[blip.sync.Connection]) -> bool:
            gc.collect()
            return found() is None

        for way in ("handler", "observer", "close request"):
            found = use(way)
            eventually(lambda found=found: is_gone(found))


def test_the_connection_of_a_request_that_outlives_it() -> None:
    async def main() -> None:
        found: asyncio.Future[Any] = asyncio.get_running_loop().create_future()

        async def ask(request: blip.Request) -> None:
            try:
                while listener.connections:
                    await asyncio.sleep(0.01)
                found.set_result(request.connection)
            except Exception as error:
                found.set_result(type(error))

        async with blip.serve("127.0.0.1", 0, handlers={"ask": ask}) as listener:
            connection = await blip.connect(listener.url)
            await connection.send("ask", wait=True)
            await asyncio.sleep(0.05)
            await connection.close()
            assert await found is blip.ConnectionClosed

    run(main())
    seen: list[Any] = []

    def ask(request: blip.sync.Request) -> None:
        try:
            eventually(lambda: not listener.connections)
            seen.append(request.connection)
        except Exception as error:
            seen.append(type(error))

    with blip.sync.serve("127.0.0.1", 0, handlers={"ask": ask}, workers=1) as listener:
        connection = blip.sync.connect(listener.url)
        connection.send("ask", wait=True)
        time.sleep(0.05)
        connection.close()
        eventually(lambda: seen)
    assert seen == [blip.ConnectionClosed]


def test_the_connection_of_a_reconnector_that_has_just_ended() -> None:
    async def main() -> None:
        async with blip.serve("127.0.0.1", 0) as listener:
            async with blip.reconnect(listener.url, backoff=(LIMIT, LIMIT, 1)) as reconnector:
                await reconnector.wait_open()
                handle = reconnector.connection
                assert handle is not None
                kept = _pump.bind("blip_connection_retain")(handle._handle)
                await listener.connections[0].close()
                await handle.wait_closed()
                late = reconnector._family.of(kept)
                _pump.bind("blip_connection_release")(kept)
                assert late.state == "closed"
                await asyncio.wait_for(late.wait_closed(), 5)
                assert not reconnector._family._members

    run(main())


def test_a_coroutine_decides_about_a_client_up_to_its_first_wait() -> None:
    async def main() -> None:
        async with blip.serve("127.0.0.1", 0, handlers=ECHO) as listener:

            @listener.on_connect
            async def decide(connection: blip.Connection) -> None:
                if connection.request_path == "/no":
                    connection.reject(404)
                elif connection.request_path == "/later":
                    connection.defer_accept()
                    await asyncio.sleep(0.05)
                    connection.accept("somebody")
                else:
                    # The client goes on meanwhile.
                    await asyncio.sleep(LIMIT)

            with pytest.raises(blip.ConnectionFailed) as caught:
                await blip.connect(listener.url + "no")
            assert caught.value.code == 404
            for path in ("later", ""):
                async with blip.connect(listener.url + path, timeout=10) as connection:
                    assert (await connection.request("echo", b"x")).body == b"x"

    run(main())


def test_a_pipe_as_a_body_does_not_hold_the_loop(tmp_path: Path) -> None:
    fifo = tmp_path / "fifo"
    os.mkfifo(fifo)

    def write() -> None:
        with open(fifo, "wb", buffering=0) as file:
            for _ in range(5):
                time.sleep(0.1)
                file.write(b"x" * 1000)

    async def main() -> None:
        ticks = 0

        async def tick() -> None:
            nonlocal ticks
            while True:
                await asyncio.sleep(0.01)
                ticks += 1

        here, there = blip.pair()
        there.add_handler("echo", ECHO["echo"])
        writer = threading.Thread(target=write)
        ticker = asyncio.ensure_future(tick())
        for body in (fifo, "file"):
            writer = threading.Thread(target=write)
            writer.start()
            before = ticks
            reply = await here.request("echo", fifo if body is fifo else await asyncio.to_thread(open, fifo, "rb"))
            assert len(reply.body) == 5000
            assert ticks - before > 10
            writer.join(LIMIT)
        ticker.cancel()
        await here.close()

    run(main())


def test_users_are_hashed_beside_the_loop() -> None:
    async def main() -> None:
        longest = 0.0

        async def tick() -> None:
            nonlocal longest
            while True:
                start = time.monotonic()
                await asyncio.sleep(0.005)
                longest = max(longest, time.monotonic() - start)

        ticker = asyncio.ensure_future(tick())
        await asyncio.sleep(0.05)
        longest = 0.0
        start = time.monotonic()
        async with blip.serve("127.0.0.1", 0, users={f"user{number}": "password" for number in range(10)}):
            took = time.monotonic() - start
            await asyncio.sleep(0.02)
        ticker.cancel()
        assert longest < max(0.1, took / 2)

    run(main())


def test_a_handler_that_ends_its_thread_ends_no_other() -> None:
    def leave(connection: Any) -> None:
        raise SystemExit

    with blip.sync.serve("127.0.0.1", 0, handlers=ECHO) as listener:
        listener.on_connect(leave)
        for _ in range(2):
            with blip.sync.connect(listener.url) as connection:
                assert connection.request("echo", b"x", timeout=10).body == b"x"


def test_an_interrupt_loses_no_other_events(monkeypatch: pytest.MonkeyPatch) -> None:
    """A batch of three, of which the receiver of the first one is interrupted."""

    def interrupt(event: int) -> None:
        raise KeyboardInterrupt

    def context_of(event: int, reference: Any) -> int:
        reference._obj.value = event
        return 0

    told: list[int] = []
    first, _ = blip.sync.pair()
    pump = _pump.Pump(first._pump._make_reply)
    monkeypatch.setattr(_pump, "_event_context", context_of)
    pump.calls.update({1: interrupt, 2: told.append, 3: told.append})
    with pytest.raises(KeyboardInterrupt):
        pump.dispatch([1, 2, 3])
    assert told == []
    pump.dispatch([])
    assert told == [2, 3]
