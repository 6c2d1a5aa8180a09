#!/usr/bin/env python3
"""Ends Python interpreters in the middle of traffic: `interpreter_exit.py LIBRARY [RUNS]`.

Each is a program that serves itself, with threads or with asyncio, and ends at a moment and in a way of its own. It must end
by itself, soon, with exit status 0 and without a word.
"""

import os
import random
import subprocess
import sys
import time
from pathlib import Path

SOURCE = Path(__file__).resolve().parents[2] / "bindings" / "python" / "src"

THREADS = """
import blip.sync, gc, os, sys, threading, time
listener = blip.sync.serve("127.0.0.1", 0, handlers={"echo": lambda request: request.body})
connection = blip.sync.connect(listener.url)
def hammer():
    while True:
        connection.request("echo", bytes(SIZE))
for _ in range(COUNT):
    threading.Thread(target=hammer, daemon=True).start()
time.sleep(PAUSE)
ENDING
"""

ASYNCIO = """
import asyncio, blip, gc, os, sys, threading, time
async def main():
    listener = await blip.serve("127.0.0.1", 0, handlers={"echo": lambda request: request.body})
    connection = await blip.connect(listener.url)
    async def hammer():
        while True:
            await connection.request("echo", bytes(SIZE))
    tasks = [asyncio.ensure_future(hammer()) for _ in range(COUNT)]
    await asyncio.sleep(PAUSE)
    return listener, connection, tasks
kept = asyncio.run(main())
ENDING
"""

ENDINGS = ["", "sys.exit(0)", "gc.collect()", "time.sleep(0.01)"]


def main():
    runs = int(sys.argv[2]) if len(sys.argv) > 2 else 200
    seed = int(os.environ.get("CHAOS_SEED", time.time()))
    chance = random.Random(seed)
    environment = dict(os.environ, LIBBLIP_PATH=sys.argv[1], PYTHONPATH=str(SOURCE))
    failed = 0
    slowest = 0.0
    for run in range(runs):
        script = chance.choice([THREADS, ASYNCIO])
        script = script.replace("SIZE", str(chance.choice([1, 1000, 100_000]))).replace("COUNT", str(chance.randint(1, 6)))
        script = script.replace("PAUSE", f"{chance.random() * 0.15:.3f}").replace("ENDING", chance.choice(ENDINGS))
        start = time.monotonic()
        try:
            done = subprocess.run([sys.executable, "-c", script], env=environment, capture_output=True, text=True, timeout=60)
            problem = done.stderr or done.stdout or (f"exit status {done.returncode}" if done.returncode else "")
        except subprocess.TimeoutExpired:
            problem = "it does not end"
        slowest = max(slowest, time.monotonic() - start)
        if problem:
            failed += 1
            print(f"seed {seed}, run {run}: {problem}\n{script}", file=sys.stderr)
            if failed == 3:
                break
    print(f"interpreter exit: {runs} runs, the slowest {slowest:.1f} s, seed {seed}: {'FAILED' if failed else 'passed'}")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
