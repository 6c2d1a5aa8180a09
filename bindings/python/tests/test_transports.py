"""Connections without a network: over transports of the program, in pairs, and to a listener in memory."""

from __future__ import annotations

import asyncio
import gc
import os
import socket
import subprocess
import sys
import threading
import weakref
from typing import Any

import pytest
from conftest import LIMIT, SOURCE, eventually, eventually_async, run, run_script

import blip
import blip.sync

SUBPROTOCOLS = ["BLIP_3", "BLIP_3+App", "BLIP", "BLIP_1"]
ECHO: dict[str | None, Any] = {"echo": lambda request: request.body}


class End(blip.Transport):
    """One of two that hand their frames to each other."""

    def __init__(self) -> None:
        self.other: End = self
        self.is_full = self.fails = False
        self.frames = self.resumes = 0
        self.closes: list[tuple[int, str]] = []
        self.threads: set[str] = set()

    def send(self, frame: bytes) -> bool:
        self.threads.add(threading.current_thread().name)
        if self.fails:
            raise blip.Error("no", status=blip.Status.NETWORK)
        if self.is_full:
            return False
        self.frames += 1
        return self.other.did_receive(frame)

    def close(self, code: int, reason: str) -> None:
        self.closes.append((code, reason))
        self.other.did_close(blip.Status.OK if code == 1000 else blip.Status.CONNECTION_LOST)

    def resume(self) -> None:
        self.resumes += 1
        self.other.did_drain()


def two_ends() -> tuple[End, End]:
    ends = End(), End()
    ends[0].other, ends[1].other = ends[1], ends[0]
    return ends


async def over(*ends: blip.Transport, subprotocol: str = "BLIP_3", **given: Any) -> Any:
    return await asyncio.gather(*(blip.connect_transport(end, subprotocol, handlers=ECHO, **given) for end in ends))


@pytest.mark.parametrize("subprotocol", SUBPROTOCOLS)
def test_a_transport_of_the_program_carries_all_versions(subprotocol: str) -> None:
    async def main() -> None:
        ends = two_ends()
        first, second = await over(*ends, subprotocol=subprotocol)
        assert first.subprotocol == second.subprotocol == subprotocol
        body = os.urandom(2_000_000)
        for connection in (first, second):
            assert (await connection.request("echo", b"hello")).body == b"hello"
            assert (await connection.request("echo", body, compressed=True)).body == body
        await first.close(1000, "done")
        await second.wait_closed()
        assert ends[0].closes == [(1000, "done")] and ends[1].closes == []
        assert ends[0].threads == {"MainThread"}
        with pytest.raises(blip.ConnectionClosed):
            ends[0].did_receive(b"late")
        ends[0].did_drain()
        ends[0].did_close()

    run(main())


def test_a_transport_may_be_full_and_is_told_to_wait() -> None:
    async def main() -> None:
        ends = two_ends()
        first, second = await over(*ends)
        ends[0].is_full = True
        reply = asyncio.ensure_future(first.request("echo", b"waits"))
        await asyncio.sleep(0.1)
        assert not reply.done() and ends[0].frames == 0
        ends[0].is_full = False
        ends[0].did_drain()
        assert (await reply).body == b"waits"
        # More than the other side takes at once.
        replies = await asyncio.gather(*(first.request("echo", bytes(8192)) for _ in range(400)))
        assert len(replies) == 400
        await first.close()
        await second.wait_closed()

    run(main())


@pytest.mark.parametrize("error", [None, RuntimeError("a bug")])
def test_a_transport_that_fails_ends_its_connection(error: Exception | None, caplog: pytest.LogCaptureFixture) -> None:
    async def main() -> None:
        ends = two_ends()
        first, second = await over(*ends)
        ends[0].fails = True
        if error is not None:

            def fail(frame: bytes) -> bool:
                raise error

            ends[0].send = fail  # type: ignore[method-assign]
        with pytest.raises(blip.Error) as caught:
            await first.request("echo")
        assert caught.value.status == blip.Status.NETWORK
        await first.wait_closed()
        ends[1].did_close(blip.Status.CONNECTION_LOST)
        with pytest.raises(blip.ConnectionClosed):
            await second.request("echo")

    run(main())
    assert ("a transport failed" in caplog.text) == (error is not None)


def test_frames_that_break_the_protocol_end_the_connection() -> None:
    async def main() -> None:
        ends = two_ends()
        first, second = await over(*ends)
        ends[0].did_receive(b"\1\0")
        await first.wait_closed()
        await second.wait_closed()
        assert [code for code, _ in ends[0].closes] == [1002]

    run(main())


def test_a_transport_opens_when_it_says_so_and_serves_once() -> None:
    class Late(End):
        def start(self) -> None:
            pass

    async def main() -> None:
        with pytest.raises(blip.ConnectTimedOut):
            await blip.connect_transport(Late(), timeout=0.1)
        with pytest.raises(blip.UsageError):
            await blip.connect_transport(End(), "BLIP_4")
        late = Late()
        connecting = asyncio.ensure_future(over(late))
        await asyncio.sleep(0.05)
        assert not connecting.done()
        with pytest.raises(blip.Error) as caught:
            await blip.connect_transport(late)
        assert caught.value.status == blip.Status.STATE
        late.did_open()
        (connection,) = await connecting
        await connection.close()

    run(main())


def test_an_interrupt_gets_through() -> None:
    async def main() -> None:
        ends = two_ends()
        first, _ = await over(*ends)

        def interrupt(frame: bytes) -> bool:
            raise KeyboardInterrupt

        ends[0].send = interrupt  # type: ignore[method-assign]
        await first.request("echo")

    with pytest.raises(KeyboardInterrupt):
        run(main())


def test_a_transport_that_nobody_keeps_works_and_goes_away() -> None:
    async def main() -> weakref.ref[End]:
        ends = two_ends()
        first, second = await over(*ends)
        found = weakref.ref(ends[0])
        del ends
        gc.collect()
        assert (await first.request("echo", b"x")).body == b"x"
        await first.close()
        await second.wait_closed()
        return found

    found = run(main())
    gc.collect()
    assert found() is None


def test_a_loop_that_was_closed_goes_away() -> None:
    """With a request of its that nobody has answered, and a connection that nobody has closed."""

    async def never(request: blip.Request) -> None:
        await asyncio.sleep(LIMIT)

    async def main() -> None:
        ends = two_ends()
        first, second = await over(*ends)
        second.add_handler("never", never)
        waiting = asyncio.ensure_future(first.request("never"))
        await asyncio.sleep(0.05)
        assert not waiting.done()
        kept.append(first)

    kept: list[Any] = []
    loop = asyncio.new_event_loop()
    loop.run_until_complete(asyncio.wait_for(main(), LIMIT))
    found = weakref.ref(loop)
    # The tasks that are thrown away complain.
    loop.set_exception_handler(lambda loop, context: None)
    loop.close()
    del loop
    kept.clear()
    gc.collect()
    assert found() is None


async def streams(descriptor: socket.socket) -> blip.StreamTransport:
    return blip.StreamTransport(*await asyncio.open_connection(sock=descriptor))


def test_asyncio_streams() -> None:
    async def main() -> None:
        sockets = socket.socketpair()
        transports = [await streams(each) for each in sockets]
        first, second = await over(*transports)
        body = os.urandom(5_000_000)
        replies = await asyncio.gather(first.request("echo", body), second.request("echo", body), first.request("echo"))
        assert [len(reply.body) for reply in replies] == [len(body), len(body), 0]
        await first.close_gracefully(timeout=LIMIT)
        await second.wait_closed()
        await eventually_async(lambda: transports[1]._writer.is_closing())

    run(main())


@pytest.mark.parametrize("data", [b"\0\0", b"\0\0\0\5abc", b"\xff\xff\xff\xff", b"\0\0\0\2\1\0"])
def test_streams_that_bring_no_frames(data: bytes) -> None:
    async def main() -> None:
        ours, theirs = socket.socketpair()
        with theirs:
            (connection,) = await over(await streams(ours))
            theirs.sendall(data)
            theirs.shutdown(socket.SHUT_WR)
            await connection.wait_closed()
            with pytest.raises(blip.Error):
                await connection.request("echo")

    run(main())


def test_the_end_of_a_stream_is_told() -> None:
    async def main() -> None:
        ours, theirs = socket.socketpair()
        seen: list[int] = []
        (connection,) = await over(await streams(ours))
        connection.observe(lambda what: seen.append(what.status), "closed")
        theirs.close()
        await connection.wait_closed()
        await eventually_async(lambda: seen)
        assert seen == [blip.Status.OK]

    run(main())


CHILD = """
import blip.sync
with blip.sync.connect_transport(blip.sync.PipeTransport(0, 1)) as connection:
    connection.add_handler("shout", lambda request: request.body.upper())
    assert connection.request("name").text() == "parent"
    connection.wait_closed()
"""


def test_a_child_process_over_its_standard_streams() -> None:
    async def main() -> None:
        child = await asyncio.create_subprocess_exec(
            *(sys.executable, "-X", "dev", "-c", CHILD),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env={**os.environ, "PYTHONPATH": str(SOURCE)},
        )
        assert child.stdin is not None and child.stdout is not None
        transport = blip.StreamTransport(child.stdout, child.stdin)
        asked = asyncio.Event()

        def name(request: blip.Request) -> str:
            asked.set()
            return "parent"

        async with blip.connect_transport(transport, handlers={"name": name}) as connection:
            await asked.wait()
            body = b"abc" * 500_000
            assert (await connection.request("shout", body)).body == body.upper()
        assert await child.wait() == 0

    run(main())


def test_pipes_without_asyncio() -> None:
    files = [os.fdopen(end, "wb" if index % 2 else "rb") for index, end in enumerate((*os.pipe(), *os.pipe()))]
    transports = blip.sync.PipeTransport(files[0], files[3]), blip.sync.PipeTransport(files[2], files[1])
    with blip.sync.connect_transport(transports[0], handlers=ECHO) as first:
        with blip.sync.connect_transport(transports[1], handlers=ECHO) as second:
            body = os.urandom(3_000_000)
            found: list[bytes] = []
            asker = threading.Thread(target=lambda: found.append(second.request("echo", body).body))
            asker.start()
            assert first.request("echo", body, timeout=LIMIT).body == body
            asker.join(LIMIT)
            assert found == [body]
    eventually(lambda: all(file.closed for file in files))
    eventually(lambda: not {"blip-reader", "blip-writer"} & {thread.name for thread in threading.enumerate()})


def test_a_socket_without_asyncio() -> None:
    ours, theirs = socket.socketpair()
    ends = [blip.sync.connect_transport(blip.sync.PipeTransport(each, each), handlers=ECHO) for each in (ours, theirs)]
    assert ends[0].request("echo", b"x", timeout=LIMIT).body == b"x"
    ends[1].close()
    ends[0].wait_closed(LIMIT)
    eventually(lambda: ours.fileno() < 0 and theirs.fileno() < 0)


@pytest.mark.parametrize("way", ["descriptor", "files", "copy"])
def test_a_socket_with_other_descriptors_ends_too(way: str) -> None:
    ours, theirs = socket.socketpair()
    reader: Any = ours
    writer: Any = ours
    if way == "descriptor":
        reader = writer = ours.detach()
    elif way == "files":
        reader, writer = ours.makefile("rb", buffering=0), ours.makefile("wb", buffering=0)
        ours.close()
    else:
        reader = ours.dup()
    descriptors = {end if isinstance(end, int) else end.fileno() for end in (reader, writer)}
    with blip.sync.connect_transport(blip.sync.PipeTransport(theirs, theirs)) as peer:
        with blip.sync.connect_transport(blip.sync.PipeTransport(reader, writer)):
            pass
        peer.wait_closed(LIMIT)
    eventually(lambda: not any(os.path.exists(f"/proc/self/fd/{each}") for each in descriptors))


def test_a_transport_that_exits_ends_no_other() -> None:
    class Exits(blip.Transport):
        def send(self, frame: bytes) -> None:
            sys.exit("no")

    with blip.sync.connect_transport(Exits()) as connection:
        with pytest.raises(blip.Error):
            connection.request("x", timeout=LIMIT)
    ours, theirs = socket.socketpair()
    with blip.sync.connect_transport(blip.sync.PipeTransport(ours, ours), handlers=ECHO):
        with blip.sync.connect_transport(blip.sync.PipeTransport(theirs, theirs)) as connection:
            assert connection.request("echo", b"x", timeout=LIMIT).body == b"x"


def test_the_interpreter_ends_with_transports_at_work() -> None:
    script = """
import os, blip.sync
here, there = os.pipe(), os.pipe()
first = blip.sync.connect_transport(blip.sync.PipeTransport(here[0], there[1]))
second = blip.sync.connect_transport(blip.sync.PipeTransport(there[0], here[1]), handlers={"x": lambda request: "y"})
print(first.request("x").text())
"""
    result = run_script(script)
    assert (result.returncode, result.stdout, result.stderr) == (0, "y\n", "")


@pytest.mark.parametrize("subprotocol", ["BLIP_3", "BLIP"])
def test_a_pair(subprotocol: str) -> None:
    async def main() -> None:
        first, second = blip.pair(subprotocols=subprotocol)
        assert first.is_open and second.is_open and first.subprotocol == subprotocol
        assert first.remote_address is None and first.url == ""
        async with first, second:
            first.handler("echo")(lambda request: request.body)
            second.add_handler("echo", ECHO["echo"])
            body = os.urandom(1_000_000)
            assert (await first.request("echo", body)).body == body
            assert (await second.request("echo", body, compressed=True)).body == body
            if subprotocol == "BLIP":
                second.on_close_request(lambda connection: False)
                assert not await first.say_bye()
        await second.wait_closed()
        third, fourth = blip.pair()
        await third.close(4321, "why not")
        await fourth.wait_closed()
        assert fourth.close_code == 4321

    run(main())


def test_a_pair_without_asyncio() -> None:
    first, second = blip.sync.pair()
    with first, second:
        second.add_handler("echo", ECHO["echo"])
        assert first.request("echo", b"x", timeout=LIMIT).body == b"x"
    assert first.state == second.state == "closed"


def test_a_listener_in_memory() -> None:
    async def main() -> None:
        async with blip.serve("127.0.0.1", 0, handlers=ECHO) as listener:

            @listener.on_connect
            def refuse(connection: blip.Connection) -> None:
                if refuses:
                    connection.reject()

            refuses = False
            async with listener.connect(handlers={"who": lambda request: "me"}) as connection:
                assert (await connection.request("echo", b"x")).body == b"x"
                (accepted,) = listener.connections
                assert accepted.is_incoming and (await accepted.request("who")).text() == "me"
            refuses = True
            with pytest.raises(blip.ConnectionFailed) as caught:
                await listener.connect()
            assert caught.value.status == blip.Status.REFUSED
            with pytest.raises(blip.Error) as other:
                await listener.connect(subprotocols="BLIP_3+Other")
            assert other.value.status == blip.Status.SUBPROTOCOL
        with pytest.raises(blip.Error):
            await listener.connect()

    run(main())


def test_a_listener_in_memory_without_asyncio() -> None:
    with blip.sync.serve("127.0.0.1", 0, handlers=ECHO) as listener:
        with listener.connect() as connection:
            assert connection.request("echo", b"x", timeout=LIMIT).body == b"x"
        eventually(lambda: not listener.connections)
