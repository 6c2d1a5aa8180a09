"""Life and death: garbage collection, the end of the interpreter, fork, a library that is missing."""

from __future__ import annotations

import gc
import os
import shutil
import sys
import time
import weakref
from pathlib import Path

import pytest
from conftest import LIMIT, SOURCE, eventually_async, run, run_script

import blip
import blip.sync
from blip import _pump

SERVE = """
import asyncio, os, sys, threading, time, gc
import blip, blip.sync
listener = blip.sync.serve("127.0.0.1", 0, handlers={"echo": lambda request: request.body})
"""


def test_a_dropped_connection_closes() -> None:
    async def main() -> None:
        async with await blip.serve("127.0.0.1", 0, handlers={"echo": lambda request: request.body}) as listener:
            connection = await blip.connect(listener.url, handlers={"x": lambda request: b""})
            await connection.request("echo")
            calls = len(connection._pump.calls)
            gone = weakref.ref(connection)
            del connection
            gc.collect()
            assert gone() is None
            await eventually_async(lambda: not listener.connections)
            assert len(_pump.loop_pump(blip.Reply).calls) < calls

    run(main())


def test_a_dropped_listener_stops() -> None:
    with blip.sync.serve("127.0.0.1", 0, handlers={"echo": lambda request: request.body}) as other:
        listener = blip.sync.serve("127.0.0.1", 0, handlers={"echo": lambda request: request.body})
        url = listener.url
        connection = blip.sync.connect(url)
        connection.request("echo")
        gone = weakref.ref(listener)
        del listener
        gc.collect()
        assert gone() is None
        connection.wait_closed(timeout=LIMIT)
        with pytest.raises(blip.ConnectionFailed):
            blip.sync.connect(url)
        with blip.sync.connect(other.url) as still:
            assert still.request("echo", b"x").body == b"x"


def test_replies_outlive_their_connection() -> None:
    with blip.sync.serve("127.0.0.1", 0, handlers={"echo": lambda request: request.body}) as listener:
        with blip.sync.connect(listener.url) as connection:
            replies = [connection.request("echo", str(number)) for number in range(100)]
            memory = connection.request("echo", b"memory").memory
        del connection
    gc.collect()
    assert [reply.text() for reply in replies] == [str(number) for number in range(100)]
    assert bytes(memory) == b"memory"
    with pytest.raises(TypeError):
        memory[0] = 1  # type: ignore[index]


def test_nothing_is_left_behind_by_many_requests() -> None:
    with blip.sync.serve("127.0.0.1", 0, handlers={"echo": lambda request: request.body}) as listener:
        with blip.sync.connect(listener.url) as connection:
            large = bytes(100_000)
            for _ in range(200):
                connection.request("echo", b"warm up")
            connection._pump.poll()
            gc.collect()
            kept, objects = len(_pump._kept), len(gc.get_objects())
            for _ in range(500):
                connection.request("echo", b"x", properties={"a": "b"})
                connection.request("echo", large)
            connection._pump.poll()
            gc.collect()
            assert len(_pump._kept) <= kept + 2
            assert len(gc.get_objects()) < objects + 200


def resident() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="reads /proc")
def test_memory_does_not_grow() -> None:
    with blip.sync.serve("127.0.0.1", 0, handlers={"echo": lambda request: request.body}) as listener:
        with blip.sync.connect(listener.url) as connection:

            def work() -> None:
                for _ in range(200):
                    connection.request("echo", bytes(200_000))

            work()
            before = resident()
            work()
            work()
            assert resident() - before < 20_000_000


@pytest.mark.parametrize(
    "ending",
    [
        "",
        "sys.exit(0)",
        "del listener, connection; gc.collect()",
        "connection.send('echo', bytes(50_000_000))",
        "threading.Thread(target=lambda: connection.request('never'), daemon=True).start(); time.sleep(0.05)",
        "[threading.Thread(target=hammer, daemon=True).start() for _ in range(4)]; time.sleep(0.2)",
    ],
)
def test_a_program_with_traffic_in_flight_ends_at_once(ending: str) -> None:
    script = (
        SERVE
        + """
connection = blip.sync.connect(listener.url)
kept = []
def never(request):
    request.defer()
    kept.append(request)
listener.add_handler("never", never)
def hammer():
    while True:
        connection.request("echo", b"x")
assert connection.request("echo", b"x").body == b"x"
print("done", flush=True)
"""
        + ending
    )
    start = time.monotonic()
    result = run_script(script)
    assert result.stdout == "done\n"
    assert result.stderr == ""
    assert result.returncode == 0
    assert time.monotonic() - start < LIMIT / 3


def test_an_asyncio_program_with_traffic_in_flight_ends_at_once() -> None:
    script = """
import asyncio, blip
kept = []
async def main():
    listener = await blip.serve("127.0.0.1", 0)
    @listener.handler("never")
    async def never(request):
        await asyncio.sleep(60)
    connection = await blip.connect(listener.url)
    tasks = [asyncio.ensure_future(connection.request("never", bytes(1000000))) for _ in range(10)]
    await asyncio.sleep(0.1)
    kept.extend([listener, connection])
    print("done", flush=True)
asyncio.run(main())
"""
    start = time.monotonic()
    result = run_script(script)
    assert result.stdout == "done\n"
    assert result.stderr == ""
    assert result.returncode == 0
    assert time.monotonic() - start < LIMIT / 3


def test_tls_traffic_in_flight_at_the_end(certificates: dict[str, str]) -> None:
    script = f"""
import blip.sync, threading, time
listener = blip.sync.serve("127.0.0.1", 0, tls=({certificates["server.pem"]!r}, {certificates["server.key"]!r}),
    handlers={{"echo": lambda request: request.body}})
connection = blip.sync.connect(f"wss://localhost:{{listener.port}}/", ca_file={certificates["ca.pem"]!r})
def hammer():
    while True:
        connection.request("echo", bytes(100000))
for _ in range(3):
    threading.Thread(target=hammer, daemon=True).start()
time.sleep(0.3)
print("done", flush=True)
"""
    result = run_script(script)
    assert (result.stdout, result.stderr, result.returncode) == ("done\n", "", 0)


def test_interrupt_ends_a_server() -> None:
    script = (
        SERVE
        + """
import signal
try:
    threading.Timer(0.2, os.kill, [os.getpid(), signal.SIGINT]).start()
    listener.wait_closed()
except KeyboardInterrupt:
    print("interrupted")
"""
    )
    result = run_script(script)
    assert (result.stdout, result.stderr, result.returncode) == ("interrupted\n", "", 0)


def test_fork() -> None:
    script = (
        SERVE
        + """
import warnings
warnings.simplefilter("ignore")
connection = blip.sync.connect(listener.url)
connection.request("echo", b"x")
child = os.fork()
if child == 0:
    for use in (
        lambda: connection.request("echo", b"x", timeout=60),
        lambda: connection.send("echo", b"x"),
        lambda: connection.ping(),
        lambda: connection.state,
        lambda: listener.port,
    ):
        try:
            use()
        except blip.Error as error:
            assert error.status == blip.Status.FORKED, error
        else:
            sys.exit("the child could use its parent's objects")
    connection.__del__()
    listener.__del__()
    print("child", flush=True)
    sys.exit(0)
pid, status = os.waitpid(child, 0)
assert status == 0, status
assert connection.request("echo", b"still mine").body == b"still mine"
print("parent")
"""
    )
    result = run_script(script)
    assert (result.stdout, result.stderr, result.returncode) == ("child\nparent\n", "", 0)


def test_a_forked_child_may_make_its_own() -> None:
    script = (
        SERVE
        + """
import warnings
warnings.simplefilter("ignore")
url = listener.url
# The header promises it for a parent whose threads are not at work: the listener's has just begun.
import time
time.sleep(0.2)
child = os.fork()
if child == 0:
    with blip.sync.connect(url) as connection:
        assert connection.request("echo", b"x").body == b"x"
    async def main():
        async with blip.connect(url) as connection:
            assert (await connection.request("echo", b"y")).body == b"y"
    asyncio.run(main())
    print("child", flush=True)
    sys.exit(0)
pid, status = os.waitpid(child, 0)
assert status == 0, status
print("parent")
"""
    )
    result = run_script(script)
    assert (result.stdout, result.stderr, result.returncode) == ("child\nparent\n", "", 0)


def test_a_missing_library_says_what_was_tried(tmp_path: Path) -> None:
    missing = str(tmp_path / "nowhere.so")
    result = run_script("import blip", environment={"LIBBLIP_PATH": missing})
    assert result.returncode == 1
    assert "LibraryNotFound" in result.stderr
    assert missing in result.stderr
    assert "LIBBLIP_PATH" in result.stderr
    assert "make install" in result.stderr


def test_a_library_that_is_another_one_is_refused() -> None:
    result = run_script("import blip", environment={"LIBBLIP_PATH": "libc.so.6"})
    assert result.returncode == 1
    assert "LibraryNotFound" in result.stderr
    assert "libc.so.6" in result.stderr


def test_a_directory_may_be_named(tmp_path: Path) -> None:
    (tmp_path / "libblip.so.1").symlink_to(Path(blip.LIBRARY_PATH).resolve())
    result = run_script("import blip; print(blip.LIBRARY_PATH)", environment={"LIBBLIP_PATH": str(tmp_path)})
    assert result.stdout.strip() == str(tmp_path / "libblip.so.1")


def test_the_library_is_looked_for_in_the_documented_order(tmp_path: Path) -> None:
    checkout, system, given = (tmp_path / name for name in ("checkout", "system", "given"))
    package = checkout / "venv" / "blip"
    shutil.copytree(SOURCE / "blip", package, ignore=shutil.ignore_patterns("*.so*", "__pycache__"))
    (checkout / "Include").mkdir()
    (checkout / "Include" / "blip.h").touch()
    for folder in (checkout / "build" / "lib", system, given):
        folder.mkdir(parents=True)
    places = (given, package, checkout / "build" / "lib", system)
    for place in places:
        shutil.copy(Path(blip.LIBRARY_PATH).resolve(), place / "libblip.so.1")

    def found(**environment: str) -> str:
        environment = {"PYTHONPATH": str(package.parent), "LD_LIBRARY_PATH": str(system), **environment}
        result = run_script("import blip; print(blip.LIBRARY_PATH)", environment={"LIBBLIP_PATH": "", **environment})
        assert result.returncode == 0, result.stderr
        return str(result.stdout.strip())

    assert found(LIBBLIP_PATH=str(given)) == str(given / "libblip.so.1")
    assert found(LIBBLIP_PATH=str(given / "libblip.so.1")) == str(given / "libblip.so.1")
    for place in places[1:3]:
        assert found() == str(place / "libblip.so.1")
        (place / "libblip.so.1").unlink()
    assert found() == "libblip.so.1"


def test_a_forked_child_does_not_disturb_its_parents_tls(certificates: dict[str, str]) -> None:
    script = f"""
import blip.sync, gc, os, sys, warnings
warnings.simplefilter("ignore")
listener = blip.sync.serve("127.0.0.1", 0, tls=({certificates["server.pem"]!r}, {certificates["server.key"]!r}),
    handlers={{"echo": lambda request: request.body}})
connection = blip.sync.connect(f"wss://localhost:{{listener.port}}/", ca_file={certificates["ca.pem"]!r})
for turn in range(5):
    reply = connection.request("echo", bytes(100000))
    child = os.fork()
    if child == 0:
        try:
            connection.close()
        except blip.Error:
            pass
        del connection, listener, reply
        gc.collect()
        sys.exit(0)
    assert os.waitpid(child, 0)[1] == 0
    assert connection.request("echo", b"still mine", timeout=60).body == b"still mine"
    assert len(reply.body) == 100000
connection.close_gracefully(timeout=60)
print("done")
"""
    result = run_script(script)
    assert (result.stdout, result.stderr, result.returncode) == ("done\n", "", 0)
