"""Frames that the program sees, connections that it gives more time, clients that it judges, and the library's log."""

from __future__ import annotations

import asyncio
import logging
import socket
import threading
import time
from typing import Any, List, Optional

import pytest
from conftest import LIMIT, eventually, eventually_async, run, run_script
from sites import upgrade

import blip
import blip.sync

BODY = bytes(range(256)) * 400


def echo(request: Any) -> bytes:
    return bytes(request.body)


def check_frames(mine: List[blip.Frame], theirs: List[blip.Frame], connection: Any, accepted: Any) -> None:
    """What one end has sent is what the other one has received, in the same order."""
    assert {frame.connection for frame in mine} == {connection}
    assert {frame.connection for frame in theirs} == {accepted}
    for outgoing in (True, False):
        sent = [frame[2:] for frame in (mine if outgoing else theirs) if frame.outgoing]
        received = [frame[2:] for frame in (theirs if outgoing else mine) if not frame.outgoing]
        assert sent == received and sent
    requests = [frame for frame in mine if frame.kind == "request"]
    assert all(frame.outgoing and frame.number == 1 and frame.urgent and not frame.no_reply for frame in requests)
    assert len(requests) > 1 and [frame.more_coming for frame in requests] == [True] * (len(requests) - 1) + [False]
    assert b"echo" in requests[0].data
    responses = [frame for frame in mine if frame.kind == "response"]
    assert responses and not any(frame.outgoing for frame in responses)
    assert not any(frame.compressed for frame in requests)
    assert {frame.kind for frame in mine} <= {"request", "response", "request_ack", "response_ack"}


def test_frames() -> None:
    async def main() -> None:
        mine: List[blip.Frame] = []
        theirs: List[blip.Frame] = []
        threads = set()

        def see(frame: blip.Frame) -> None:
            threads.add(threading.current_thread())
            mine.append(frame)

        async with blip.serve("127.0.0.1", 0, on_frame=theirs.append, handlers={"echo": echo}) as listener:
            async with blip.connect(listener.url, on_frame=see) as connection:
                reply = await connection.request("echo", BODY, urgent=True, compressed=False, timeout=LIMIT)
                assert reply.body == BODY
                accepted = listener.connections[0]
            await eventually_async(lambda: len(mine) == len(theirs))
        check_frames(mine, theirs, connection, accepted)
        assert threads == {threading.main_thread()}

    run(main())


def test_frames_without_asyncio() -> None:
    mine: List[blip.Frame] = []
    theirs: List[blip.Frame] = []
    with blip.sync.serve("127.0.0.1", 0, on_frame=theirs.append, handlers={"echo": echo}) as listener:
        with blip.sync.connect(listener.url, on_frame=mine.append) as connection:
            assert connection.request("echo", BODY, urgent=True, compressed=False, timeout=LIMIT).body == BODY
            accepted = listener.connections[0]
        eventually(lambda: len(mine) == len(theirs))
    check_frames(mine, theirs, connection, accepted)


def test_frames_of_a_transport() -> None:
    async def main() -> None:
        ends = socket.socketpair()
        seen: List[str] = []
        streams = [await asyncio.open_connection(sock=end) for end in ends]
        first, second = await asyncio.gather(
            blip.connect_transport(blip.StreamTransport(*streams[0]), on_frame=lambda frame: seen.append(frame.kind)),
            blip.connect_transport(blip.StreamTransport(*streams[1]), handlers={"echo": echo}),
        )
        async with first, second:
            assert (await first.request("echo", b"x", timeout=LIMIT)).body == b"x"
        assert seen == ["request", "response"]

    run(main())


def test_what_a_function_raises_disturbs_nobody(caplog: pytest.LogCaptureFixture) -> None:
    def broken(frame: blip.Frame) -> None:
        raise RuntimeError("seen enough")

    with blip.sync.serve("127.0.0.1", 0, handlers={"echo": echo}) as listener:
        with blip.sync.connect(listener.url, on_frame=broken) as connection:
            assert connection.request("echo", b"x", timeout=LIMIT).body == b"x"
    assert [record.message for record in caplog.records] == ["on_frame failed"] * 2


def test_coroutine_functions_cannot_answer_at_once() -> None:
    async def later(stall: blip.Stall) -> Optional[float]:
        return 1

    with pytest.raises(TypeError, match="on_timeout"):
        blip.sync.serve("127.0.0.1", 0, on_timeout=later)  # type: ignore[arg-type]


def test_a_listener_gives_more_time() -> None:
    async def main() -> None:
        stalls: List[blip.Stall] = []

        def extend(stall: blip.Stall) -> Optional[float]:
            stalls.append(stall)
            return 0.2 if len(stalls) < 3 else None

        start = time.monotonic()
        async with blip.serve("127.0.0.1", 0, read_timeout=0.2, on_timeout=extend) as listener:
            never = asyncio.Event()

            async def half() -> Any:
                yield bytes(100_000)
                await never.wait()

            connection = await blip.connect(listener.url)
            sending = asyncio.ensure_future(connection.request("upload", half()))
            await eventually_async(lambda: listener.connections)
            accepted = listener.connections[0]
            await accepted.wait_closed()
            with pytest.raises(blip.ConnectionClosed):
                await sending
        assert time.monotonic() - start >= 0.6
        assert [stall.connection for stall in stalls] == [accepted] * 3
        assert [stall.writing for stall in stalls] == [False] * 3
        times = [stall.elapsed for stall in stalls]
        assert times == sorted(times) and times[0] >= 0.2 and times[2] >= 0.6
        assert {stall.bytes for stall in stalls} == {stalls[0].bytes} and stalls[0].bytes > 100

    run(main())


@pytest.mark.parametrize("answers", [[0.1, 0.1, 0], [None], [RuntimeError("no")], ["soon"]])
def test_a_client_gives_more_time(answers: List[Any], caplog: pytest.LogCaptureFixture) -> None:
    stalls: List[blip.Stall] = []

    def extend(stall: blip.Stall) -> Any:
        stalls.append(stall)
        answer = answers[len(stalls) - 1]
        if isinstance(answer, Exception):
            raise answer
        return answer

    upgraded = threading.Event()

    def serve() -> None:
        # A server that takes nothing once the client is in.
        peer, _ = listener.accept()
        with peer:
            head = b""
            while b"\r\n\r\n" not in head:
                head += peer.recv(4096)
            peer.sendall(upgrade(head))
            upgraded.wait(LIMIT)

    with socket.socket() as listener:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        listener.bind(("127.0.0.1", 0))
        listener.listen()
        thread = threading.Thread(target=serve)
        thread.start()
        try:
            url = f"ws://127.0.0.1:{listener.getsockname()[1]}/"
            connection = blip.sync.connect(url, write_timeout=0.2, on_timeout=extend)
            with pytest.raises(blip.Error) as caught:
                for _ in range(1000):
                    connection.send("much", bytes(100_000), compressed=False)
            assert caught.value.status == blip.Status.TIMEOUT
            assert len(stalls) == len(answers)
            assert all(stall.writing and stall.connection is connection for stall in stalls)
        finally:
            upgraded.set()
            thread.join()
    failed = [record.message for record in caplog.records]
    assert failed == (["on_timeout failed"] if answers[0] not in (0.1, None) else [])


@pytest.mark.parametrize("accept", [True, False])
@pytest.mark.parametrize("is_async", [True, False])
def test_a_listener_judges_its_clients(accept: bool, is_async: bool, certificates: dict[str, str]) -> None:
    seen: List[Any] = []
    server = (certificates["server.pem"], certificates["server.key"])
    own = (certificates["client.pem"], certificates["client.key"])
    client: Any = {"identity": own, "ca_file": certificates["ca.pem"]}

    def judge(trust: blip.Trust) -> bool:
        seen.append((trust.host, bool(trust.certificates), trust.code != 0, trust.remote_address))
        return accept

    async def judge_later(trust: blip.Trust) -> bool:
        await asyncio.sleep(0.01)
        return judge(trust)

    async def main() -> Any:
        async with blip.serve("127.0.0.1", 0, tls=server, on_trust=judge_later, handlers={"echo": echo}) as listener:
            async with blip.connect(f"wss://localhost:{listener.port}/", **client) as connection:
                await connection.request("echo", b"x", timeout=LIMIT)
                return listener.connections[0].peer_certificate, connection.local_address

    def main_sync() -> Any:
        with blip.sync.serve("127.0.0.1", 0, tls=server, on_trust=judge, handlers={"echo": echo}) as listener:
            with blip.sync.connect(f"wss://localhost:{listener.port}/", **client) as connection:
                connection.request("echo", b"x", timeout=LIMIT)
                return listener.connections[0].peer_certificate, connection.local_address

    if accept:
        certificate, address = run(main()) if is_async else main_sync()
        assert certificate and seen == [(None, True, True, address)]
    else:
        with pytest.raises(blip.Error):
            run(main()) if is_async else main_sync()
        assert [each[:3] for each in seen] == [(None, True, True)]


def test_the_log_is_off_at_first_and_goes_into_logging() -> None:
    script = """
import asyncio, logging, sys
import blip.sync
logging.basicConfig(stream=sys.stdout, level=logging.DEBUG, format="%(levelname)s %(name)s %(threadName)s: %(message)s")
logging.getLogger("asyncio").setLevel(logging.WARNING)
with blip.sync.serve("127.0.0.1", 0) as listener:
    blip.sync.connect(listener.url).close()
print("begin", flush=True)
blip.set_log("info")
with blip.sync.serve("127.0.0.1", 0) as listener:
    blip.sync.connect(listener.url, on_frame=print).close()
blip.set_log(None)
print("off", flush=True)
with blip.sync.serve("127.0.0.1", 0) as listener:
    blip.sync.connect(listener.url).close()
blip.set_log(logging.WARNING, logging.getLogger("mine"))
with blip.sync.serve("127.0.0.1", 0, on_frame=print, users={"me": "secret"}) as listener:
    try:
        blip.sync.connect(listener.url, credentials=("me", "other"))
    except blip.ConnectionFailed:
        pass
"""
    result = run_script(script)
    assert (result.stderr, result.returncode) == ("", 0)
    before, rest = result.stdout.split("begin\n")
    assert before == ""
    assert rest.splitlines()[-1].startswith("WARNING mine.listener blip-log: a client gave a wrong")
    lines = rest.splitlines()
    assert any(line.startswith("INFO blip.listener blip-log: listening on ws://127.0.0.1:") for line in lines)
    assert sum("blip.connection" in line and "connecting to ws://127.0.0.1:" in line for line in lines) == 1
    assert sum(": open, BLIP_3" in line for line in lines) == 2
    assert not any("DEBUG" in line for line in lines)


@pytest.mark.parametrize("ending", ["", "sys.exit(0)", "del connection"])
def test_the_log_is_written_until_the_end(ending: str) -> None:
    script = f"""
import logging, sys, threading
import blip.sync
logging.basicConfig(stream=sys.stdout, level=logging.DEBUG)
blip.set_log(logging.DEBUG)
def see(frame):
    str(frame)
listener = blip.sync.serve("127.0.0.1", 0, on_frame=see, handlers={{"echo": lambda request: request.body}})
connection = blip.sync.connect(listener.url, on_frame=see)
def hammer(**options):
    while True:
        blip.sync.connect(listener.url, **options).request("echo", b"x")
for options in ({{}}, {{}}, {{"on_frame": see}}):
    threading.Thread(target=hammer, kwargs=options, daemon=True).start()
connection.request("echo", b"x")
{ending}
"""
    start = time.monotonic()
    result = run_script(script)
    assert (result.stderr, result.returncode) == ("", 0)
    assert "INFO:blip.connection:open, BLIP_3" in result.stdout
    assert time.monotonic() - start < LIMIT / 3


def test_lines_that_wait_at_the_end_are_written() -> None:
    script = """
import logging, sys, time
import blip.sync
class Slow(logging.StreamHandler):
    def emit(self, record):
        super().emit(record)
        if "listening" in record.getMessage():
            time.sleep(0.2)
logging.basicConfig(handlers=[Slow(sys.stdout)], level=logging.INFO, format="%(message)s")
blip.set_log()
with blip.sync.serve("127.0.0.1", 0) as listener:
    for _ in range(20):
        blip.sync.connect(listener.url).close()
"""
    result = run_script(script)
    assert (result.stderr, result.returncode) == ("", 0)
    assert result.stdout.count("open, BLIP_3\n") == 40


def test_an_asyncio_program_that_watches_ends_at_once() -> None:
    script = """
import asyncio, sys
import blip
kept = []
async def main():
    listener = await blip.serve("127.0.0.1", 0, on_frame=kept.append, read_timeout=60, on_timeout=kept.append)
    @listener.handler("never")
    async def never(request):
        await asyncio.sleep(60)
    connection = await blip.connect(listener.url, on_frame=kept.append)
    tasks = [asyncio.ensure_future(connection.request("never", bytes(1000000))) for _ in range(10)]
    await asyncio.sleep(0.1)
    kept.extend([listener, connection])
    print("done", flush=True)
asyncio.run(main())
"""
    start = time.monotonic()
    result = run_script(script)
    assert (result.stdout, result.stderr, result.returncode) == ("done\n", "", 0)
    assert time.monotonic() - start < LIMIT / 3


def test_levels_of_the_log() -> None:
    with pytest.raises(ValueError, match="no level"):
        blip.set_log("loud")
    records: List[logging.LogRecord] = []

    class Handler(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            records.append(record)

    logger = logging.getLogger("levels.of.the.log")
    logger.setLevel(logging.INFO)
    logger.addHandler(Handler())
    blip.set_log(logging.DEBUG, logger)
    try:
        with blip.sync.serve("127.0.0.1", 0):
            eventually(lambda: any("listening on" in record.getMessage() for record in records))
    finally:
        blip.set_log(None)
    assert {record.levelno for record in records} == {logging.INFO}
    assert {record.name for record in records} == {"levels.of.the.log.listener"}


def test_a_forked_child_asks_for_its_own_log() -> None:
    script = """
import logging, os, sys, warnings
import blip.sync
warnings.simplefilter("ignore")
logging.basicConfig(stream=sys.stdout, level=logging.INFO, format="%(message)s")
blip.set_log()
child = os.fork()
if child == 0:
    with blip.sync.serve("127.0.0.1", 0):
        pass
    print("child", flush=True)
    blip.set_log()
    with blip.sync.serve("127.0.0.1", 0):
        pass
    sys.exit(0)
assert os.waitpid(child, 0)[1] == 0
"""
    result = run_script(script)
    assert (result.stderr, result.returncode) == ("", 0)
    first, *rest = result.stdout.splitlines()
    assert first == "child" and any("listening on" in line for line in rest)
