#!/usr/bin/env python3
"""Python clients, with asyncio and with threads, between a network that fails: `python_clients.py LIBRARY CHAOS [SECONDS]`.

A server runs in one process, each of two clients in another, and the proxy of the program CHAOS between them. Each request
must end once, in time, with the right body or a `blip.Error`; nothing else may be said by anybody, and when all is over the
clients have as many descriptors as before.
"""

import asyncio
import contextlib
import gc
import json
import os
import random
import subprocess
import sys
import threading
import time
from pathlib import Path

SOURCE = Path(__file__).resolve().parents[2] / "bindings" / "python" / "src"
# What is not over then hangs.
PATIENCE = 60.0

problems = []


def complain(text):
    problems.append(text)


def descriptors():
    return len(os.listdir("/proc/self/fd"))


def settle(before):
    """Waits until as many descriptors are open as before."""
    deadline = time.monotonic() + 20
    while descriptors() > before and time.monotonic() < deadline:
        gc.collect()
        time.sleep(0.02)
    if descriptors() > before:
        complain(f"{descriptors()} descriptors are open, {before} were at the start")


class Tally:
    def __init__(self):
        self.lock = threading.Lock()
        self.counts = {"connections": 0, "opened": 0, "requests": 0, "answered": 0, "failed": 0, "cancelled": 0}

    def add(self, what):
        with self.lock:
            self.counts[what] += 1


def pieces(body):
    for at in range(0, len(body), 9000):
        yield body[at : at + 9000]


def plan(chance):
    """A request: its body, whether that is made of pieces, whether the reply is streamed, compressed, and its deadline."""
    size = chance.choice([0, 10, 1000, 1000, 30_000, 200_000])
    return (os.urandom(8) * (size // 8 + 1))[:size], chance.random() < 0.2, chance.random() < 0.3, chance.random() < 0.3, \
        chance.choice([0.05, 1.0, 5.0])


# asyncio


async def ask(connection, chance, tally):
    body, in_pieces, stream, compressed, timeout = plan(chance)
    tally.add("requests")
    try:
        reply = await connection.request(
            "echo", pieces(body) if in_pieces else body, stream=stream, compressed=compressed, timeout=timeout)
        # The deadline is over with the properties; what then stalls for ever ends with the connection.
        got = await asyncio.wait_for(reply.read(), PATIENCE) if stream else reply.body
    except blip.Error:
        tally.add("failed")
    except asyncio.CancelledError:
        tally.add("cancelled")
    else:
        tally.add("answered")
        if bytes(got) != body:
            complain(f"asyncio: {len(got)} other bytes than the {len(body)} that were sent")


async def converse(url, chance, tally):
    tally.add("connections")
    try:
        connection = await blip.connect(url, timeout=3, ping=(2, 1), close_timeout=1)
    except blip.Error:
        return
    tally.add("opened")
    tasks = [asyncio.ensure_future(ask(connection, chance, tally)) for _ in range(chance.randint(1, 12))]
    way = chance.randrange(4)
    if way == 0:
        await asyncio.sleep(chance.random() * 0.05)
        chance.choice(tasks).cancel()
    elif way == 1:
        await asyncio.sleep(chance.random() * 0.2)
        await connection.close()
    elif way == 2:
        await connection.close_gracefully(timeout=1)
    await asyncio.gather(*tasks)
    await connection.close()


async def run_asyncio(url, seconds, chance, tally):
    def heard(_loop, context):
        complain(f"asyncio: {context.get('message')} {context.get('exception')!r}")

    asyncio.get_running_loop().set_exception_handler(heard)
    end = time.monotonic() + seconds
    while time.monotonic() < end and not problems:
        turns = [converse(url, random.Random(chance.random()), tally) for _ in range(8)]
        await asyncio.wait_for(asyncio.gather(*turns), 2 * PATIENCE)


# Threads


def ask_waiting(connection, chance, tally):
    body, in_pieces, stream, compressed, timeout = plan(chance)
    tally.add("requests")
    try:
        reply = connection.request(
            "echo", pieces(body) if in_pieces else body, stream=stream, compressed=compressed, timeout=timeout)
        got = reply.read(PATIENCE) if stream else reply.body
    except blip.Error:
        tally.add("failed")
    else:
        tally.add("answered")
        if bytes(got) != body:
            complain(f"threads: {len(got)} other bytes than the {len(body)} that were sent")


def converse_waiting(url, end, chance, tally):
    while time.monotonic() < end and not problems:
        tally.add("connections")
        try:
            connection = blip.sync.connect(url, timeout=3, ping=(2, 1), close_timeout=1)
        except blip.Error:
            continue
        tally.add("opened")
        asking = [
            threading.Thread(target=ask_waiting, args=(connection, random.Random(chance.random()), tally))
            for _ in range(chance.randint(1, 4))
        ]
        for thread in asking:
            thread.start()
        way = chance.randrange(3)
        if way == 0:
            time.sleep(chance.random() * 0.2)
            connection.close()
        elif way == 1:
            connection.close_gracefully(timeout=1)
        for thread in asking:
            thread.join(2 * PATIENCE)
            if thread.is_alive():
                complain("threads: a request does not end")
        connection.close()


def run_threads(url, seconds, chance, tally):
    end = time.monotonic() + seconds
    threads = [
        threading.Thread(target=converse_waiting, args=(url, end, random.Random(chance.random()), tally)) for _ in range(6)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(seconds + 4 * PATIENCE)
        if thread.is_alive():
            complain("threads: a connection does not end")


def client(kind, url, plain, seconds, seed):
    """One client's process. `plain` is the server without the proxy: what is only made once is made there."""
    sys.unraisablehook = lambda unraisable: complain(f"{kind}: {unraisable.exc_value!r} in {unraisable.object!r}")
    threading.excepthook = lambda given: complain(f"{kind}: {given.exc_value!r} in a thread")
    chance, tally = random.Random(seed), Tally()
    if kind == "asyncio":

        async def whole():
            connection = await blip.connect(plain)
            await connection.request("echo", b"x")
            await connection.close()
            before = descriptors()
            await run_asyncio(url, seconds, chance, tally)
            connection = None
            gc.collect()
            for _ in range(200):
                if descriptors() <= before:
                    break
                await asyncio.sleep(0.05)
            settle(before)

        asyncio.run(whole())
    else:
        with blip.sync.connect(plain) as connection:
            connection.request("echo", b"x")
        time.sleep(0.2)
        before = descriptors()
        run_threads(url, seconds, chance, tally)
        settle(before)
    counts = tally.counts
    if counts["requests"] != counts["answered"] + counts["failed"] + counts["cancelled"]:
        complain(f"{kind}: not every request has ended")
    if not counts["answered"]:
        complain(f"{kind}: nothing was answered")
    print(json.dumps({"counts": counts, "problems": problems}))


def serve():
    with blip.sync.serve("127.0.0.1", 0, handlers={"echo": lambda request: bytes(request.body)}) as listener:
        print(listener.port, flush=True)
        sys.stdin.read()


def main():
    library, chaos = sys.argv[1:3]
    seconds = float(sys.argv[3]) if len(sys.argv) > 3 else 60
    seed = int(os.environ.get("CHAOS_SEED", time.time()))
    environment = dict(os.environ, LIBBLIP_PATH=library, PYTHONPATH=str(SOURCE))
    failed = False
    with contextlib.ExitStack() as stack:

        def start(*command):
            process = stack.enter_context(
                subprocess.Popen(
                    command, env=environment, text=True, stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                    stderr=subprocess.PIPE))
            stack.callback(process.kill)
            return process

        own = (sys.executable, __file__)
        server = start(*own, "--server")
        port = server.stdout.readline().strip()
        proxy = start(chaos, "proxy", port, "--seed", str(seed))
        through = proxy.stdout.readline().strip()
        clients = {
            kind: start(*own, "--client", kind, f"ws://127.0.0.1:{through}/", f"ws://127.0.0.1:{port}/", str(seconds), str(seed))
            for kind in ("asyncio", "threads")
        }
        for kind, process in clients.items():
            try:
                said, complaint = process.communicate(timeout=seconds + 6 * PATIENCE)
                result = json.loads(said.splitlines()[-1]) if said else {"counts": {}, "problems": []}
                found = result["problems"] + ([complaint] if complaint else [])
                if process.returncode != 0:
                    found.append(f"exit status {process.returncode}")
            except subprocess.TimeoutExpired:
                result, found = {"counts": {}}, ["it does not end"]
            counts = ", ".join(f"{count} {what}" for what, count in result["counts"].items())
            print(f"python, {kind}: {counts}; seed {seed}: {'FAILED' if found else 'passed'}")
            for text in found[:10]:
                print(f"  {text}", file=sys.stderr)
            failed = failed or bool(found)
        for process in (proxy, server):
            said, complaint = process.communicate("", timeout=PATIENCE)
            if complaint or process.returncode != 0:
                print(f"  exit status {process.returncode}: {complaint}", file=sys.stderr)
                failed = True
    return 1 if failed else 0


if __name__ == "__main__":
    if sys.argv[1:2] == ["--server"]:
        import blip
        import blip.sync

        serve()
    elif sys.argv[1:2] == ["--client"]:
        import blip
        import blip.sync

        client(sys.argv[2], sys.argv[3], sys.argv[4], float(sys.argv[5]), int(sys.argv[6]))
    else:
        sys.exit(main())
