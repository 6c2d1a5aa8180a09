"""Observers, reconnectors and pools, in both interfaces."""

from __future__ import annotations

import asyncio
import socket
import threading
import time
from typing import Any, List

import pytest
from conftest import eventually, eventually_async, run

import blip
from blip import Observation, Status

WAIT = 20.0


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


async def serve(port: int = 0, profile: str = "echo") -> blip.Listener:
    listener = None
    end = time.monotonic() + WAIT
    while listener is None:
        try:
            listener = await blip.serve("127.0.0.1", port)
        except blip.ListenFailed:
            assert time.monotonic() < end
            await asyncio.sleep(0.02)
    listener.add_handler(profile, lambda request: request.body)
    return listener


def test_observers_in_asyncio() -> None:
    async def main() -> None:
        told: List[Observation] = []
        accepted: List[Observation] = []
        async with await serve() as listener:
            listener.observe(accepted.append, "open", "request", "closed")
            async with blip.connect(listener.url) as connection:
                observer = connection.observe(told.append, "sent", "response", "will_close", "closed")
                with pytest.raises(ValueError):
                    connection.observe(told.append, "nonsense")
                assert (await connection.request("echo", b"x")).body == b"x"
                await eventually_async(lambda: len(told) == 2)
                assert {entry.what for entry in told} == {"sent", "response"}
                assert all(entry.message for entry in told)
                passing = connection.observe(told.append, "response")
                passing.remove()
                passing.remove()
            await eventually_async(lambda: len(told) == 4)
            assert [entry.what for entry in told[2:]] == ["will_close", "closed"]
            assert told[-1].status == 0
            observer.remove()
            await eventually_async(lambda: len(accepted) == 3)
            assert [entry.what for entry in accepted] == ["open", "request", "closed"]

    run(main())


def test_observers_in_threads() -> None:
    told: List[Observation] = []
    with blip.sync.serve("127.0.0.1", 0) as listener:
        listener.add_handler("echo", lambda request: request.body)
        with blip.sync.connect(listener.url) as connection:
            connection.observe(told.append, "response")
            connection.request("echo", b"x")
            eventually(lambda: len(told) == 1)


def test_an_asyncio_reconnector_connects_again_and_carries_over() -> None:
    async def main() -> None:
        states: List[str] = []
        listener = await serve()
        port = listener.port
        async with blip.reconnect(
            f"ws://127.0.0.1:{port}/",
            backoff=(0.01, 0.05, 2),
            carry_over=True,
            handlers={"reverse": lambda request: bytes(reversed(request.body))},
        ) as client:
            client.on_state(lambda state, status: states.append(state))
            await asyncio.wait_for(client.wait_open(), WAIT)
            assert (await client.request("echo", b"one")).body == b"one"
            assert client.connection is not None and client.connection.is_open
            assert client.connection is client.connection
            peer = listener.connections[0]
            assert (await peer.request("reverse", b"abc")).body == b"cba"
            await listener.close(graceful=False)
            await eventually_async(lambda: "waiting" in states)
            waiting = asyncio.ensure_future(client.request("echo", b"two"))
            with pytest.raises(blip.TimeoutError):
                await client.request("echo", b"late", timeout=0.05)
            listener = await serve(port)
            assert (await asyncio.wait_for(waiting, WAIT)).body == b"two"
            await client.send("echo", b"no reply")
            with pytest.raises(ValueError):
                client.add_handler(None, lambda request: None)
        assert client.state == "stopped"
        assert client.connection is None
        with pytest.raises(blip.ConnectionClosed):
            await client.request("echo", b"three")
        await listener.close()

    run(main())


def test_an_asyncio_reconnector_gives_up() -> None:
    async def main() -> None:
        async with blip.reconnect(f"ws://127.0.0.1:{free_port()}/", backoff=(0.001, 0.002, 1), attempts=3) as client:
            with pytest.raises(blip.Error) as caught:
                await asyncio.wait_for(client.wait_open(), WAIT)
            assert caught.value.status == Status.REFUSED
            assert client.delay is None
            client.wake()

    run(main())


def test_messages_have_a_representation() -> None:
    seen: List[str] = []
    with blip.sync.serve("127.0.0.1", 0) as listener, blip.sync.connect(listener.url) as client:

        @listener.handler("echo")
        def echo(request: Any) -> bytes:
            seen.append(repr(request))
            return bytes(request.body)

        reply = client.request("echo", b"12345", timeout=WAIT)
        assert seen == ["<blip request 1, 5 bytes>"] and repr(reply) == "<blip reply 1, 5 bytes>"


def test_times_that_are_none_or_endless() -> None:
    here, there = blip.sync.pair()
    with here, there:
        there.add_handler("echo", lambda request: request.body)
        assert here.request("echo", b"1", timeout=float("inf")).body == b"1"
        with pytest.raises(TypeError, match="a number of seconds, not str"):
            here.request("echo", timeout="3")  # type: ignore[arg-type]
        assert repr(here) == "<blip connection open>"


def test_reconnectors_have_credentials() -> None:
    with blip.sync.serve("127.0.0.1", 0, users={"anna": "secret"}) as listener:
        listener.add_handler("whoami", lambda request: request.connection.user)
        with blip.sync.reconnect(listener.url, credentials=("anna", "secret")) as client:
            assert client.request("whoami", timeout=WAIT).text() == "anna"

        async def main() -> None:
            async with blip.reconnect(listener.url, credentials=("anna", "secret"), preemptive=False) as client:
                assert (await client.request("whoami", timeout=WAIT)).text() == "anna"

        run(main())


@pytest.mark.parametrize("wrong", ["ab", ("anna",), ("anna", "secret", ""), 5])
def test_credentials_that_are_no_pair_are_refused_without_showing_them(wrong: Any) -> None:
    for connect in (blip.sync.connect, blip.sync.reconnect):
        with pytest.raises(TypeError) as caught:
            connect("ws://127.0.0.1:1/", credentials=wrong)
        assert str(caught.value) == "credentials: (user, password) is needed"


def test_a_reconnector_that_gives_up_says_why() -> None:
    async def main() -> None:
        async with blip.reconnect("wss://127.0.0.1:1/", ca_file="/not/there.pem") as client:
            with pytest.raises(blip.Error, match="/not/there.pem: No such file"):
                await client.request("echo", timeout=WAIT)
            with pytest.raises(blip.ConnectionFailed, match="/not/there.pem: No such file"):
                await asyncio.wait_for(client.wait_open(), WAIT)

    run(main())
    with blip.sync.reconnect("wss://127.0.0.1:1/", ca_file="/not/there.pem") as client:
        with pytest.raises(blip.ConnectionFailed, match="/not/there.pem: No such file"):
            client.wait_open(WAIT)


def test_a_reconnector_in_threads() -> None:
    states: List[str] = []
    listener = blip.sync.serve("127.0.0.1", 0)
    listener.add_handler("echo", lambda request: request.body)
    port = listener.port
    with blip.sync.reconnect(
        f"ws://127.0.0.1:{port}/", backoff=(0.01, 0.05, 2), carry_over=True, handlers={"hello": lambda request: "hi"}
    ) as client:
        client.on_state(lambda state, status: states.append(state))
        client.wait_open(WAIT)
        assert client.request("echo", b"one").body == b"one"
        eventually(lambda: len(listener.connections) == 1)
        assert listener.connections[0].request("hello").text() == "hi"
        listener.close(graceful=False)
        eventually(lambda: "waiting" in states)
        replies: List[Any] = []
        thread = threading.Thread(target=lambda: replies.append(client.request("echo", b"two", timeout=WAIT)))
        thread.start()
        end = time.monotonic() + WAIT
        while True:
            try:
                listener = blip.sync.serve("127.0.0.1", port)
                break
            except blip.ListenFailed:
                assert time.monotonic() < end
        listener.add_handler("echo", lambda request: request.body)
        thread.join(WAIT)
        assert replies[0].body == b"two"
    assert client.state == "stopped"
    listener.close()


def test_pools() -> None:
    async def main() -> None:
        async with await serve() as listener, blip.Pool(idle_timeout=0.2) as pool:
            first, second = await asyncio.gather(pool.connection(listener.url), pool.connection(listener.url))
            assert first is second
            assert len(pool) == 1
            assert (await first.request("echo", b"x")).body == b"x"
            other = await pool.connection(listener.url + "other")
            assert other is not first and len(pool) == 2
            del other
            with pytest.raises(blip.UsageError):
                await pool.connection("gopher://x")
            with pytest.raises(blip.ConnectionFailed):
                await pool.connection(f"ws://127.0.0.1:{free_port()}/")
            await first.close()
            assert (await pool.connection(listener.url)) is not first

    run(main())
    with blip.sync.serve("127.0.0.1", 0) as listener:
        listener.add_handler("echo", lambda request: request.body)
        with blip.sync.Pool() as pool:
            connection = pool.connection(listener.url)
            assert connection is pool.connection(listener.url)
            assert connection.request("echo", b"x").body == b"x"
            assert len(pool) == 1
        assert connection.state == "closed"
